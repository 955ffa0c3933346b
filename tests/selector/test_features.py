"""Root features against their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from selector.distributions import Sampling, entropy, kl_divergence, l1_distance
from selector.features import SCALARS, Previous, latency_scalars, root_features
from selector.latency import LatencyProfile

TARGET, DRAFT, ROOT = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.25, 0.5]), torch.tensor([1.0, 0.0, 0.0])


def test_scalars_by_hand() -> None:
    previous = Previous(TARGET, DRAFT, torch.ones(4, dtype=torch.bfloat16), torch.ones(2))
    features = root_features(
        previous,
        draft_probs_root=ROOT,
        draft_hidden_root=torch.zeros(2),
        target_hidden_size=4,
        context_length=7,
        sampling=Sampling(0.6, 0.9),
    )
    scalars = dict(zip(SCALARS, features.scalars.tolist(), strict=True))
    assert scalars["target_entropy_prev"] == pytest.approx(math.log(2))
    assert scalars["draft_entropy_prev"] == pytest.approx(1.5 * math.log(2))
    assert scalars["draft_entropy_root"] == 0
    assert scalars["kl_target_draft"] == pytest.approx(math.log(2))
    assert scalars["kl_draft_target"] == pytest.approx(-0.5 * math.log(2) + 0.5 * math.log(0.5e10), rel=1e-5)
    assert scalars["l1_prev"] == pytest.approx(1.0)
    assert [scalars[name] for name in ("context_length", "temperature", "top_p")] == pytest.approx([7, 0.6, 0.9])
    assert features.target_hidden.dtype == torch.float32


def test_one_token_context_has_zeros_for_prev() -> None:
    features = root_features(
        None,
        draft_probs_root=DRAFT,
        draft_hidden_root=torch.ones(2),
        target_hidden_size=4,
        context_length=0,
        sampling=Sampling(),
    )
    assert not features.target_hidden.any()
    assert features.target_hidden.shape == (4,)
    assert not features.draft_hidden_prev.any()
    assert features.scalars[2] > 0
    assert features.scalars[[0, 1, 3, 4, 5]].tolist() == [0] * 5


def test_scalars_are_those_of_the_textbook() -> None:
    generator = torch.Generator().manual_seed(0)
    target, draft = (3 * torch.randn(500, generator=generator) for _ in range(2))
    draft[100:400] = -torch.inf
    laws = [law.softmax(0) for law in (target, draft)]
    previous = Previous(*laws, torch.zeros(4), torch.zeros(4))
    features = root_features(
        previous, draft_probs_root=laws[1], draft_hidden_root=torch.zeros(4), target_hidden_size=4, context_length=9,
        sampling=Sampling(0.6, 0.9),
    )  # fmt: skip
    expected = [
        entropy(laws[0]), entropy(laws[1]), entropy(laws[1]), kl_divergence(*laws), kl_divergence(laws[1], laws[0]),
        l1_distance(*laws), 9.0, 0.6, 0.9,
    ]  # fmt: skip
    assert features.scalars.tolist() == pytest.approx([float(value) for value in expected], rel=1e-5)


def test_latency_scalars_are_logarithms() -> None:
    profile = LatencyProfile((10,), (1,), ((0.1,),), ((0.01,),), (0.0,), (0.1,))
    torch.testing.assert_close(latency_scalars(torch.tensor([5, 50]), profile), torch.tensor([[-2.0, -1.0]] * 2))
