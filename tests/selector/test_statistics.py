"""Intervals: they cover, they are paired, they are undefined where the figure is."""

import numpy as np
import pytest

from selector.evaluation.metrics import PolicyScores
from selector.latency import LatencyProfile
from selector.offline.baselines import oracle, plain_decoding, score_policy, static_policies
from selector.offline.labelled_roots import build_roots
from selector.statistics import percentile_interval, prompt_sums, resample_counts, resampled_rates
from tests.support.synthetic_data import make_dataset


def test_sums_by_prompt() -> None:
    sums = prompt_sums(np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1]), 3)
    assert sums.tolist() == [2.0, 5.0, 0.0]


def test_resamples_hold_as_many_prompts() -> None:
    counts = resample_counts(7, 50, seed=0)
    assert counts.shape == (50, 7)
    assert (counts.sum(1) == 7).all()
    assert (counts == resample_counts(7, 50, seed=0)).all()


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, truth, hits = np.random.default_rng(0), 1 / 0.02, 0
    for trial in range(200):
        tokens = np.full((40, 1), 8.0)
        seconds = 8 * (0.01 + rng.gamma(2.0, 0.005, (40, 1)))
        draws = resampled_rates(tokens, seconds, resample_counts(40, 400, seed=trial))[:, 0]
        interval = percentile_interval(float(tokens.sum() / seconds.sum()), draws, 0.95)
        hits += interval.low <= truth <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def test_a_policy_against_itself_has_no_spread(profile: LatencyProfile) -> None:
    roots = build_roots(make_dataset(noise=0.2), "specinfer", profile)
    outcomes = {"plain": plain_decoding(roots), "best_static": score_policy(roots, np.full(len(roots), 4), roots.times)}
    scores = PolicyScores("specinfer", roots, outcomes, resample_counts(24, 100, 0), 0.95)
    assert scores.ratio("best_static", "best_static") == pytest.approx((1.0, 1.0, 1.0))
    spread = scores.throughput("best_static")
    assert spread.low < spread.value < spread.high


def test_gap_recovered_is_0_for_the_static_tree_and_1_for_the_oracle(profile: LatencyProfile) -> None:
    roots = build_roots(make_dataset(), "specinfer", profile)
    outcomes = {"plain": plain_decoding(roots), **static_policies(roots, roots), "oracle": oracle(roots)}
    scores = PolicyScores("specinfer", roots, outcomes, resample_counts(24, 200, 0), 0.95)
    assert scores.gap_recovered("best_static") == pytest.approx((0.0, 0.0, 0.0))
    assert scores.gap_recovered("oracle") == pytest.approx((1.0, 1.0, 1.0))


def test_undefined_figures_are_none() -> None:
    assert percentile_interval(np.nan, np.array([1.0, np.nan]), 0.95) == (None, None, None)
    assert percentile_interval(1.0, np.array([1.0] * 9 + [np.nan]), 0.95) == (1.0, None, None)
