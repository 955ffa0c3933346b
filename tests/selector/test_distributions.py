"""Warping as transformers does it, inverse-CDF draws, distances."""

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from selector.distributions import Sampling, draw, warp
from selector.errors import UserError
from tests.support.distances import entropy, kl_divergence, l1_distance

LOGITS = 3 * torch.randn(6, 40, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.4), Sampling(1.2, 0.9), Sampling(0.8, 0.5, 7), Sampling(1.0, 1.0, 3)]
)
def test_warp_is_transformers_order(sampling):
    warped = TemperatureLogitsWarper(sampling.temperature)(None, LOGITS)
    if sampling.top_k:
        warped = TopKLogitsWarper(sampling.top_k)(None, warped)
    if sampling.top_p < 1:
        warped = TopPLogitsWarper(sampling.top_p)(None, warped)
    expected = torch.softmax(warped, -1)
    law = warp(LOGITS, sampling)
    assert torch.equal(law > 0, expected > 0)
    torch.testing.assert_close(law, expected)


@pytest.mark.parametrize("temperature", [1e-300, 1e-45, 1e-40, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("rest", [(1.0, 0), (0.9, 5)])
def test_laws_are_finite_at_any_temperature(temperature, rest):
    logits = LOGITS.clone()
    logits[:, 3] = float("-inf")
    law = warp(logits, Sampling(temperature, *rest))
    torch.testing.assert_close(law.sum(-1), torch.ones(len(law)))
    assert not law[:, 3].any()
    if temperature < 1:
        assert torch.equal(law, warp(logits, Sampling(0.0)))


def test_greedy_is_one_hot_at_the_first_argmax():
    law = warp(torch.tensor([[1.0, 5.0, 5.0], [2.0, 0.0, 1.0]]), Sampling(0.0))
    assert law.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]


def test_warp_is_float32_or_wider():
    assert warp(LOGITS.bfloat16(), Sampling(0.5)).dtype == torch.float32
    assert warp(LOGITS.double(), Sampling(0.5)).dtype == torch.float64


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("shape", [(5000,), (6, 5000), (2, 3, 5000)])
def test_nucleus_of_a_large_vocabulary(top_p, shape):
    """Sharp rows take the fast way, flat ones the sort; both agree with transformers."""
    logits = torch.randn(6, 5000, generator=torch.Generator().manual_seed(3)) * torch.linspace(0.5, 6, 6)[:, None]
    logits = logits[2] if len(shape) == 1 else logits.reshape(shape)
    expected = torch.softmax(TopPLogitsWarper(top_p)(None, logits.reshape(-1, 5000)), -1).reshape(shape)
    torch.testing.assert_close(warp(logits, Sampling(1.0, top_p)), expected, rtol=1e-4, atol=1e-6)


def test_nucleus_of_one_token_survives():
    assert int((warp(LOGITS, Sampling(1.0, 1e-6)) > 0).sum()) == len(LOGITS)


@pytest.mark.parametrize(
    "values",
    [
        (-1.0, 1.0, 0),
        (float("nan"), 1.0, 0),
        (1.0, 0.0, 0),
        (1.0, 1.1, 0),
        (1.0, 1.0, -1),
        ("hot", 1.0, 0),
        (None, 1.0, 0),
        (1.0, True, 0),
        (1.0, 1.0, 2.5),
    ],
)
def test_bad_settings(values):
    with pytest.raises(UserError, match=r"^(temperature|top_p|top_k) is "):
        Sampling(*values)


def test_draw_frequencies():
    law = torch.tensor([0.0, 0.2, 0.0, 0.5, 0.3, 0.0])
    tokens = draw(law.expand(20_000, -1), torch.Generator().manual_seed(2))
    counts = torch.bincount(tokens, minlength=6) / 20_000
    assert tokens.dtype == torch.int64
    assert counts[law == 0].tolist() == [0.0, 0.0, 0.0]
    assert float((counts - law).abs().max()) < 4.5 * 0.5 / 20_000**0.5


class Uniform:
    """Stands in for torch.rand, to draw at the edges of the unit interval."""

    def __init__(self, value):
        self.value = value

    def __call__(self, *size, **settings):
        return torch.full(size, self.value, dtype=settings["dtype"])


@pytest.mark.parametrize("value", [0.0, 1 - 2**-53])
def test_zero_probability_is_never_drawn_at_the_edges(monkeypatch, value):
    monkeypatch.setattr(torch, "rand", Uniform(value))
    law = torch.tensor([[0.0, 0.3, 0.7 - 1e-7, 0.0], [0.0, 0.0, 1.0, 0.0]])
    assert (law.gather(1, draw(law)[:, None]) > 0).all()


def test_distances():
    law, other = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.25, 0.5])
    assert float(entropy(law)) == pytest.approx(0.693147, abs=1e-6)
    assert float(kl_divergence(law, other)) == pytest.approx(0.693147, abs=1e-6)
    assert float(l1_distance(law, other)) == 1.0
    assert float(kl_divergence(law, law)) == 0.0
    assert torch.isfinite(kl_divergence(other, law))
