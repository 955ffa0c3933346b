"""A profile of a tiny pair has the right shape, and is one that `LatencyProfile` accepts."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from selector.decoding.policies import SelectorPolicy
from selector.decoding.profiling import expansion_of_width, fitting_contexts, measure_profile
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.early_exit import build_early_exit
from selector.engine.reference_generate import assistant, transformers_generate
from selector.errors import UserError
from selector.latency import LatencyProfile
from selector.pair_names import ModelName, PairNames
from selector.provenance import hardware_words
from selector.trees.expansion import Expansion

NAMES = PairNames(ModelName("some/target"), ModelName("drafts/some/draft"))


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32, 64, 100])
def test_trees_have_the_width(width: int) -> None:
    assert 1 + expansion_of_width(width).num_drafted == width


@pytest.mark.parametrize("inputs", ["all", "root"])
def test_profile(target: HuggingFaceModel, draft: HuggingFaceModel, inputs: Any) -> None:
    pair = SimpleNamespace(target=target, draft=draft, dtype=torch.float32, names=NAMES)
    shares: list[float] = []
    drawn = torch.get_rng_state()
    profile = measure_profile(pair, (3, 20), (1, 4, 12), repeats=1, inputs=inputs, progress=shares.append)
    assert LatencyProfile.from_dict(json.loads(json.dumps(asdict(profile)))) == profile
    assert min(map(min, profile.target_seconds)) > 0 < min(map(min, profile.draft_seconds))
    assert min(profile.overhead_seconds) > 0 < profile.selector_seconds
    assert shares == [0.25, 0.5, 0.75, 1.0]
    assert profile.machine["dtype"] == "float32"
    known = profile.provenance
    assert (known.kind, known.target, known.draft) == ("measured", "some/target", "some/draft")
    assert known.hardware == hardware_words(profile.machine)
    assert "torch" in known.engine
    assert torch.equal(torch.get_rng_state(), drawn)


def test_contexts_that_the_models_hold() -> None:
    """GPT-2 and its like have as many positions as they have learned, and no more."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=32, n_positions=24, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    models = [HuggingFaceModel(GPT2LMHeadModel(config).eval()) for _ in range(2)]
    pair: Any = SimpleNamespace(target=models[0], draft=models[1], dtype=torch.float32, names=NAMES)
    assert measure_profile(pair, (3, 8, 64, 512), (1, 4), repeats=1).contexts == (3, 8)
    assert fitting_contexts(pair, (64, 512), 16) == [8]
    with pytest.raises(UserError, match="holds 24 tokens"):
        fitting_contexts(pair, (64,), 64)


def test_assisted_generation_takes_a_reduced_head(target: HuggingFaceModel) -> None:
    support = torch.arange(0, 64, 2)
    reduced = build_early_exit(target.model, [0, 1], support)
    draft = HuggingFaceModel(reduced, support)
    plain = transformers_generate(target, [3, 4, 5], 12, Sampling(0.0))
    assert transformers_generate(target, [3, 4, 5], 12, Sampling(0.0), assistant_model=assistant(draft)) == plain
    assert draft.model.lm_head.out_features == 32


def test_the_selector_that_is_timed_is_the_real_one(
    target: HuggingFaceModel, draft: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once a step, reads features of real roots, and each step commits a token or more."""
    contexts: list[int] = []
    choose = SelectorPolicy.choose

    def recorded(self: SelectorPolicy, root: Any) -> Expansion:
        contexts.append(root.context_length)
        return choose(self, root)

    monkeypatch.setattr(SelectorPolicy, "choose", recorded)
    pair: Any = SimpleNamespace(target=target, draft=draft, dtype=torch.float32, names=NAMES)
    measure_profile(pair, (5,), (1, 4), repeats=1)
    assert len(contexts) == 2 * 2 * 2
    assert contexts[0] == contexts[4] == 4
    assert all(later > earlier for earlier, later in itertools.pairwise(contexts[:4]))
