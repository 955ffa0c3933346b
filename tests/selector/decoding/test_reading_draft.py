"""Decoding with a draft that reads the target's hidden states: the law, the features, and what its cache holds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from selector.config import PairConfig
from selector.decoding.decoder import Decoder
from selector.distributions import Sampling, warp
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.drafting import start_root
from selector.engine.early_exit import build_early_exit, load_draft, save_draft
from selector.engine.huggingface import pair_with
from selector.engine.reading_draft import ReadingDraft
from selector.engine.text_index import TextIndex
from selector.errors import UserError
from selector.features import Previous, RootFeatures, read_target
from selector.trees.expansion import Expansion
from selector.trees.verifiers import VERIFIERS
from tests.support.every_draw import Law, difference, every_run
from tests.support.tiny_models import tiny_model

SAMPLING = Sampling(0.9, 0.95)
TREES = [Expansion(*numbers) for numbers in [(3, 1, 2), (1, 0, 0), (1, 0, 1), (2, 0, 3), (1, 0, 0), (1, 0, 0)]]


def pair_of(vocab: int = 64, support: Tensor | None = None, pack: bool = True, architecture: str = "Llama") -> Any:
    model = tiny_model(architecture, vocab=vocab, scale=2.0)
    draft = build_early_exit(model, [1], support, "target")
    with torch.no_grad():
        draft.base_model.fuse.weight.add_(torch.randn(draft.base_model.fuse.weight.shape) * 0.3)
    engines = HuggingFaceModel(model, pack=pack), ReadingDraft(draft, support, pack=pack)
    return SimpleNamespace(target=engines[0], draft=engines[1], end_ids=(), decode=str)


class Recorder:
    """Looks at the features of every root, and takes the trees in turn."""

    def __init__(self) -> None:
        self.seen: dict[int, RootFeatures] = {}

    def choose(self, root: Any) -> Expansion:
        self.seen[root.context_length] = root.features()
        return TREES[len(self.seen) % len(TREES)]


def states_of(target: HuggingFaceModel, text: list[int]) -> tuple[Tensor, Tensor]:
    """The target's logits and hidden states at all tokens but the last, in one pass."""
    target.reset()
    return target.extend(torch.tensor(text[:-1]), range(-1, len(text) - 2))


def read(pair: Any, text: list[int]) -> None:
    pair.draft.reset()
    start = torch.zeros(1, pair.target.hidden_size)
    pair.draft.read(torch.cat([start, states_of(pair.target, text)[1]]) if len(text) > 1 else start)


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize(("expansion", "count"), [((2, 0, 1), 3), ((2, 1, 1), 3), ((1, 0, 2), 4)], ids=str)
def test_output_law_is_the_targets(verifier: str, expansion: Any, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(vocab=2)
    decoder = Decoder(pair, verifier, Expansion(*expansion))
    law = every_run(lambda: decoder.generate([1], count, Sampling(0.8)).tokens, monkeypatch)
    expected: Law = {(): 1.0}
    for _ in range(count):
        longer: Law = {}
        for text, probability in expected.items():
            logits = states_of(pair.target, [1, *text, 0])[0][-1]
            for token, chance in enumerate(warp(logits, Sampling(0.8)).tolist()):
                longer[(*text, token)] = probability * chance
        expected = longer
    assert difference(law, expected) < 1e-5


@pytest.mark.parametrize("architecture", ["Llama", "Qwen3"])
@pytest.mark.parametrize("prompt", [[7], [7, 8], [5, 6, 7, 8, 9, 10]], ids=len)
def test_replay(prompt: list[int], architecture: str) -> None:
    """Features along a decoded text are those of fresh passes over its prefix that read the target's states."""
    support = torch.arange(0, 64, 2)
    pair, recorder = pair_of(support=support, architecture=architecture), Recorder()
    text = prompt + Decoder(pair, "specinfer", recorder).generate(prompt, 30, SAMPLING).tokens
    assert len(recorder.seen) > 3
    for length, features in recorder.seen.items():
        known = text[: length + 1]
        read(pair, known)
        root = start_root(pair.draft, known, SAMPLING)
        previous = None
        if len(known) > 1:
            logits, hidden = states_of(pair.target, known)
            law = read_target(warp(logits[-1:], SAMPLING)[0], support)
            previous = Previous(law, root.probs[-2], hidden[-1], root.hidden[-2])
        index = TextIndex(known[: len(prompt)])
        index.append(known[len(prompt) :])
        expected = root.features(previous, pair.target.hidden_size, length, SAMPLING, index.match())
        for name in ("target_hidden", "draft_hidden_prev", "draft_hidden_root", "scalars"):
            torch.testing.assert_close(getattr(features, name), getattr(expected, name), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("pack", [False, True])
def test_rows_made_token_by_token_are_those_of_one_pass(pack: bool) -> None:
    """Also where a tree was drafted below each of them, and dropped."""
    pair, text = pair_of(pack=pack), [5, 6, 7, 8, 9, 10, 11]
    read(pair, text)
    whole = pair.draft.extend(torch.tensor(text), range(-1, len(text) - 1)).logits
    states = torch.cat([torch.zeros(1, pair.target.hidden_size), states_of(pair.target, text)[1]])
    pair.draft.reset()
    for place, token in enumerate(text):
        pair.draft.read(states[place : place + 1])
        row = pair.draft.extend(torch.tensor([token]), [-1]).logits[0]
        torch.testing.assert_close(row, whole[place], atol=1e-4, rtol=1e-4)
        pair.draft.extend(torch.tensor([1, 2]), [0, 0])
        pair.draft.keep([0])


def test_a_drafted_row_reads_the_state_above_it() -> None:
    pair = pair_of()
    states = torch.randn(1, pair.target.hidden_size)
    pair.draft.read(states)
    pair.draft.extend(torch.tensor([5]), [-1])
    tree = pair.draft.extend(torch.tensor([6, 7]), [0, 0])
    below = pair.draft.extend(torch.tensor([8]), [2])
    pair.draft.keep([0, 2])
    pair.draft.read(tree.hidden[1:])
    again = pair.draft.extend(torch.tensor([8]), [-1])
    torch.testing.assert_close(again.logits, below.logits, atol=1e-4, rtol=1e-4)
    pair.draft.reset()
    pair.draft.read(states)
    pair.draft.extend(torch.tensor([5]), [-1])
    other = pair.draft.extend(torch.tensor([6, 7]), [-1, -1])
    assert not torch.allclose(other.logits, tree.logits, atol=1e-2), "without the root they read nothing"


def test_a_saved_draft_that_reads_the_target_is_loaded_as_one(tmp_path: Path) -> None:
    """From its folder to a text, through the pair that every verb loads."""
    model = tiny_model("Llama", scale=2.0)
    draft = build_early_exit(model, [1], None, "target")
    with torch.no_grad():
        draft.base_model.fuse.weight.add_(0.1)
    save_draft(draft, tmp_path, layers=[1], head_tokens=None, info={})
    pair = pair_with(
        model,
        SimpleNamespace(decode=lambda tokens, **kind: str(tokens), get_vocab=dict),
        PairConfig(draft=str(tmp_path)),
    )
    assert type(pair.draft) is ReadingDraft
    text = Decoder(pair, "specinfer", Expansion(2, 0, 2)).generate([5, 6, 7], 12, SAMPLING, seed=1)
    assert len(text.tokens) == 12
    assert pair.draft.fingerprint != HuggingFaceModel(build_early_exit(model, [1], None)).fingerprint


def test_a_draft_that_reads_something_else_is_refused(tmp_path: Path) -> None:
    model = tiny_model("Llama")
    save_draft(build_early_exit(model, [1], None), tmp_path, layers=[1], head_tokens=None, info={"reads": "tea leaves"})
    with pytest.raises(UserError, match="reads 'tea leaves', not one of tokens, target"):
        load_draft(tmp_path, model)
