"""Root features against their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from selector.distributions import Sampling
from selector.features import SCALARS, Previous, RootFeatures, read_target, root_features
from selector.latency import LatencyProfile, latency_scalars
from tests.support.distances import entropy, kl_divergence, l1_distance

TARGET, DRAFT, ROOT = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.25, 0.5]), torch.tensor([1.0, 0.0, 0.0])


def features_of(
    previous: Previous | None,
    law: torch.Tensor,
    logits: torch.Tensor,
    hidden: torch.Tensor | None = None,
    context_length: int = 7,
    sampling: Sampling = Sampling(0.6, 0.9),  # noqa: B008
) -> RootFeatures:
    return root_features(
        previous,
        draft_probs=law,
        draft_logits=logits,
        draft_hidden=torch.zeros(2) if hidden is None else hidden,
        target_hidden_size=4,
        context_length=context_length,
        sampling=sampling,
    )


def named(features: RootFeatures) -> dict[str, float]:
    return dict(zip(SCALARS, features.scalars.tolist(), strict=True))


def test_scalars_by_hand() -> None:
    previous = Previous(read_target(TARGET, None), DRAFT, torch.ones(4, dtype=torch.bfloat16), torch.ones(2))
    features = features_of(previous, ROOT, torch.tensor([2.0, 1.0, 1.0]).log())
    scalars = named(features)
    assert scalars["target_entropy_prev"] == pytest.approx(math.log(2))
    assert scalars["draft_entropy_prev"] == pytest.approx(1.5 * math.log(2))
    assert scalars["draft_entropy_root"] == 0
    assert scalars["kl_target_draft"] == pytest.approx(math.log(2))
    assert scalars["kl_draft_target"] == pytest.approx(-0.5 * math.log(2) + 0.5 * math.log(0.5e10), rel=1e-5)
    assert scalars["l1_prev"] == pytest.approx(1.0)
    assert scalars["draft_unwarped_entropy_root"] == pytest.approx(1.5 * math.log(2)), "a half and two quarters"
    assert scalars["draft_confidence_root"] == pytest.approx(0.5)
    assert [scalars[name] for name in ("context_length", "temperature", "top_p")] == pytest.approx([7, 0.6, 0.9])
    assert features.target_hidden.dtype == torch.float32


def test_one_token_context_has_zeros_for_prev() -> None:
    features = features_of(None, DRAFT, DRAFT.log(), torch.ones(2), 0)
    assert not features.target_hidden.any()
    assert features.target_hidden.shape == (4,)
    assert not features.draft_hidden_prev.any()
    scalars = named(features)
    own = ("draft_entropy_root", "draft_unwarped_entropy_root", "draft_confidence_root")
    assert all(scalars[name] > 0 for name in own)
    measured = SCALARS[: SCALARS.index("context_length")]
    assert [scalars[name] for name in measured if name not in own] == [0] * 5


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9], ids=lambda share: f"{share} outside")
@pytest.mark.parametrize("known", [False, True], ids=["whole vocabulary", "own columns"])
@pytest.mark.parametrize("sharpness", [1.0, 5.0, 100.0])
def test_scalars_are_those_of_the_textbook(share: float, known: bool, sharpness: float) -> None:
    generator = torch.Generator().manual_seed(0)
    target, draft = (sharpness * torch.randn(500, generator=generator) for _ in range(2))
    order = torch.randperm(500, generator=generator)
    draft[order[: int(500 * share)]] = -torch.inf
    support = order[int(500 * share) :] if known else torch.arange(500)
    laws = [law.softmax(0) for law in (target, draft)]
    read = read_target(laws[0], support if known else None)
    previous = Previous(read, laws[1][support], torch.zeros(4), torch.zeros(2))
    features = features_of(previous, (draft / 0.6).softmax(0)[support], draft[support])
    expected = [
        entropy(laws[0]), entropy(laws[1]), entropy((draft / 0.6).softmax(0)), kl_divergence(*laws),
        kl_divergence(laws[1], laws[0]), l1_distance(*laws), entropy(laws[1]), laws[1].max(), 7.0, 0.6, 0.9,
        *[0.0] * 7,
    ]  # fmt: skip
    assert features.scalars.tolist() == pytest.approx([float(value) for value in expected], rel=1e-5, abs=1e-6)


def test_latency_scalars_are_logarithms() -> None:
    profile = LatencyProfile((10,), (1,), ((0.1,),), ((0.01,),), (0.0,), (0.1,))
    torch.testing.assert_close(latency_scalars(torch.tensor([5, 50]), profile), torch.tensor([[-2.0, -1.0]] * 2))
