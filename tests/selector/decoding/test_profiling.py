"""A profile of a tiny pair has the right shape, and is one that `LatencyProfile` accepts."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from selector.decoding.profiling import expansion_of_width, measure_profile
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.early_exit import build_early_exit
from selector.engine.reference_generate import assistant, transformers_generate
from selector.latency import LatencyProfile


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32, 64, 100])
def test_trees_have_the_width(width: int) -> None:
    assert 1 + expansion_of_width(width).num_drafted == width


@pytest.mark.parametrize("inputs", ["all", "root"])
def test_profile(target: HuggingFaceModel, draft: HuggingFaceModel, inputs: Any) -> None:
    pair = SimpleNamespace(target=target, draft=draft, dtype=torch.float32)
    shares: list[float] = []
    profile = measure_profile(pair, (3, 20), (1, 4, 12), repeats=1, inputs=inputs, progress=shares.append)
    assert LatencyProfile.from_dict(json.loads(json.dumps(asdict(profile)))) == profile
    assert min(map(min, profile.target_seconds)) > 0 < min(map(min, profile.draft_seconds))
    assert min(profile.overhead_seconds) > 0 < profile.selector_seconds
    assert shares == [0.25, 0.5, 0.75, 1.0]
    assert profile.machine["dtype"] == "float32"


def test_assisted_generation_takes_a_reduced_head(target: HuggingFaceModel) -> None:
    support = torch.arange(0, 64, 2)
    reduced = build_early_exit(target.model, [0, 1], support)
    draft = HuggingFaceModel(reduced, support)
    plain = transformers_generate(target, [3, 4, 5], 12, Sampling(0.0))
    assert transformers_generate(target, [3, 4, 5], 12, Sampling(0.0), assistant_model=assistant(draft)) == plain
    assert draft.model.lm_head.out_features == 32
