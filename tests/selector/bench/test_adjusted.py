"""Adjusted means: right on average whatever the covariates say, and far less noisy where they say much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from selector.bench.adjusted import AGREED, ENOUGH, AdjustedMeans, covariates
from selector.bench.coin import StepArm, coin_text
from selector.decoding.policies import parse_policy
from selector.distributions import Sampling
from selector.features import Match
from selector.latency import LatencyProfile
from selector.statistics import Floats
from selector.trees.verifiers import get_verifier
from tests.selector.bench.test_coin import pair
from tests.support.profiles import make_profile

MATCH = Match(4, 3, 7, 9, 2, 1, False, 0.25)
PROMPTS = 5


def drawn(seed: int, steps: int = 400, noise: float = 0.1) -> tuple[Any, Any, Floats, Floats]:
    """Arms of 2 and 3 tokens a step on average; the covariate says the rest, in the second arm twice as much."""
    rng = np.random.default_rng(seed)
    arm, prompt = rng.integers(0, 2, steps), rng.integers(0, PROMPTS, steps)
    known = rng.exponential(1.0, (steps, 1))
    values = 2.0 + arm + (1 + arm) * (known[:, 0] - 1) + noise * rng.standard_normal(steps)
    return arm, prompt, known, values


def difference(seed: int, known: bool) -> float:
    arm, prompt, covariate, values = drawn(seed)
    means = AdjustedMeans(arm, prompt, covariate if known else covariate[:, :0], 2, np.ones((1, PROMPTS)))
    return float(means.of(1, values)[0][0] - means.of(0, values)[0][0])


def test_the_mean_is_kept_and_the_noise_taken_off() -> None:
    plain, adjusted = ([difference(seed, known) for seed in range(200)] for known in (False, True))
    assert np.std(adjusted) < 0.6 * np.std(plain)
    for found in (plain, adjusted):
        assert abs(np.mean(found) - 1) < 4 * np.std(found) / len(found) ** 0.5


def test_a_resample_is_the_same_as_repeating_its_prompts() -> None:
    arm, prompt, known, values = drawn(0)
    counts = np.array([[0.0, 2.0, 1.0, 1.0, 1.0]])
    rows = np.concatenate([np.flatnonzero(prompt == place) for place in (1, 1, 2, 3, 4)])
    expected = AdjustedMeans(arm[rows], prompt[rows], known[rows], 2, np.ones((1, PROMPTS))).of(1, values[rows])
    assert AdjustedMeans(arm, prompt, known, 2, counts).of(1, values)[0] == pytest.approx(expected[0])


def test_few_steps_are_taken_as_they_are() -> None:
    arm, prompt, known, values = drawn(0, steps=2 * ENOUGH)
    found = AdjustedMeans(arm, prompt, known, 3, np.ones((1, PROMPTS)))
    assert found.of(1, values)[0] == pytest.approx(values[arm == 1].mean())
    assert np.isnan(found.of(2, values)[0])


def test_a_constant_covariate_changes_nothing() -> None:
    arm, prompt, known, values = drawn(0)
    found = AdjustedMeans(arm, prompt, np.concatenate([known * 0, known * 0 + 3], 1), 2, np.ones((1, PROMPTS)))
    assert found.of(0, values)[0] == pytest.approx(values[arm == 0].mean())


@pytest.mark.parametrize(
    ("after", "agreed"), [([7, 8, 9], 3), ([7, 8, 1], 2), ([0, 8, 9], 0), ([7, 8, 9, 5, 6, 7, 8, 9, 5, 6], 10), ([], 0)]
)
def test_agreement_ends_where_the_text_leaves_the_copy(after: list[int], agreed: int) -> None:
    """Past the copy's own beginning, it repeats itself, as a copied chain does."""
    found = covariates([1, 2, 6, 7, 8, 9, 5, 6, *after], 7, MATCH)
    assert found == (1.0, pytest.approx(np.log2(5)), 0.25, *(min(agreed, most) for most in AGREED))
    assert covariates([1, 2], 1, None) == (0.0,) * len(found)


def test_what_the_arms_met_does_not_depend_on_them() -> None:
    """Every covariate has one mean over the steps of all arms, also where an arm's steps are long."""
    policies = "copy 8", "(1, 0, 0)", "match 2: copy 4, else (1, 0, 3)"
    arms = [StepArm(text, get_verifier("naive"), parse_policy(text)) for text in policies]
    profile: LatencyProfile = make_profile()
    found = [
        record for seed in range(60) for record in coin_text(pair(4), arms, profile, [1, 0, 2], Sampling(0.7), seed, 24)
    ]
    known, arm = np.array([record.known for record in found]), np.array([record.arm for record in found])
    parts = [known[arm == place] for place in range(len(arms))]
    for other in parts[1:]:
        error = (parts[0].var(0) / len(parts[0]) + other.var(0) / len(other)) ** 0.5
        assert (np.abs(parts[0].mean(0) - other.mean(0)) < 4 * error + 1e-9).all()
