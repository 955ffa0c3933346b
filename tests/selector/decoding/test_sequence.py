"""Features along a decoded text equal features from fresh passes over its prefix, as data generation builds them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from selector.decoding.decoder import Decoder
from selector.distributions import Sampling, warp
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.drafting import start_root
from selector.engine.early_exit import build_early_exit
from selector.engine.text_index import TextIndex
from selector.features import SCALARS, Previous, RootFeatures, read_target
from selector.trees.expansion import Expansion

SAMPLING = Sampling(0.9, 0.95)
TREES = [Expansion(*numbers) for numbers in [(3, 1, 2), (1, 0, 0), (1, 0, 1), (2, 0, 3), (1, 0, 0), (1, 0, 0)]]


class Recorder:
    """Looks at the features of every root, or of every other one, and takes the trees in turn."""

    def __init__(self, every: int, previous: bool = True) -> None:
        self.every, self.previous, self.calls = every, previous, 0
        self.seen: dict[int, RootFeatures] = {}

    def choose(self, root: Any) -> Expansion:
        if self.calls % self.every == 0:
            self.seen[root.context_length] = root.features(previous=self.previous)
        self.calls += 1
        return TREES[self.calls % len(TREES)]


def fresh_features(
    target: LlamaForCausalLM, draft: LlamaForCausalLM, support: Any, text: list[int], prompt: int
) -> RootFeatures:
    """Features after a text whose first `prompt` tokens are the prompt, from new passes and a new index."""
    index = TextIndex(text[:prompt])
    index.append(text[prompt:])
    models = HuggingFaceModel(target), HuggingFaceModel(draft, support)
    root = start_root(models[1], text, SAMPLING)
    previous = None
    if len(text) > 1:
        scores = models[0].extend(torch.tensor(text[:-1]), range(-1, len(text) - 2), last_rows=1)
        law = read_target(warp(scores.logits, SAMPLING)[0], support)
        previous = Previous(law, root.probs[-2], scores.hidden[0], root.hidden[-2])
    return root.features(previous, models[0].hidden_size, len(text) - 1, SAMPLING, index.match())


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("prompt", [[7], [7, 8], [5, 6, 7, 8, 9, 10]], ids=len)
def test_replay(
    target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM, reduced: bool, every: int, prompt: list[int]
) -> None:
    support = torch.arange(0, 64, 2) if reduced else None
    draft = build_early_exit(target_llama, [0], support) if reduced else draft_llama
    recorder = Recorder(every)
    pair: Any = type("Pair", (), {"end_ids": (), "decode": staticmethod(str)})()
    pair.target, pair.draft = HuggingFaceModel(target_llama), HuggingFaceModel(draft, support)
    text = prompt + Decoder(pair, "specinfer", recorder).generate(prompt, 30, SAMPLING).tokens
    assert len(recorder.seen) > 3
    for length, features in recorder.seen.items():
        expected = fresh_features(target_llama, draft, support, text[: length + 1], len(prompt))
        for name in ("target_hidden", "draft_hidden_prev", "draft_hidden_root", "scalars"):
            torch.testing.assert_close(getattr(features, name), getattr(expected, name), atol=2e-3, rtol=2e-3)


def test_without_the_token_before(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    """Its features are zeros, those of the root are the same, and so is the text."""
    pair: Any = type("Pair", (), {"end_ids": (), "decode": staticmethod(str), "target": target, "draft": draft})()
    recorders = [Recorder(1), Recorder(1, previous=False)]
    texts = [Decoder(pair, "specinfer", recorder).generate([5, 6, 7], 30, SAMPLING).tokens for recorder in recorders]
    assert texts[0] == texts[1]
    for length, whole in recorders[0].seen.items():
        root = recorders[1].seen[length]
        assert whole.target_hidden.any()
        assert not root.target_hidden.any()
        assert not root.draft_hidden_prev.any()
        assert torch.equal(root.draft_hidden_root, whole.draft_hidden_root)
        for number, name in enumerate(SCALARS):
            previous = name.endswith("_prev") or name.startswith("kl_")
            assert float(root.scalars[number]) == (0 if previous else float(whole.scalars[number]))
