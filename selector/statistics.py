"""Paired bootstrap over prompts: every policy sees the same resampled prompts.

Roots of one prompt are not independent, so prompts are resampled, never roots. All figures of the report are
functions of per-prompt sums, hence one matrix product draws every resample of every policy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MIN_VALID_SHARE = 0.975


class Interval(NamedTuple):
    """A value with its percentile interval; None where it is undefined (see `percentile_interval`)."""

    value: float | None
    low: float | None
    high: float | None


def prompt_sums(values: Floats, prompts: NDArray[np.int64], num_prompts: int) -> Floats:
    """Sum `values [roots]` over the roots of each prompt `[prompts]`; `prompts [roots]` numbers them from 0."""
    return np.bincount(prompts, weights=values, minlength=num_prompts).astype(np.float64)


def resample_counts(num_prompts: int, resamples: int, seed: int) -> Floats:
    """How often each prompt is drawn in each resample: `[resamples, prompts]`, rows sum to `num_prompts`."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(num_prompts, np.full(num_prompts, 1 / num_prompts), size=resamples).astype(np.float64)


def resampled_rates(tokens: Floats, costs: Floats, counts: Floats) -> Floats:
    """Tokens per cost of each resample and policy, `[resamples, policies]`.

    `tokens [prompts]` are the roots of a prompt, each for one token; `costs [prompts, policies]` sum their seconds
    (or steps) a token.
    """
    rates: Floats = (counts @ tokens)[:, None] / (counts @ costs)
    return rates


def percentile_interval(value: float, draws: Floats, level: float) -> Interval:
    """The interval that holds the middle `level` of `draws`.

    Draws may be NaN where a resample leaves the figure undefined (a share of a gap that is not there); the
    interval is None if that happens in more than a fortieth of the resamples, and the value if it is NaN itself.
    """
    valid = draws[np.isfinite(draws)]
    centre = float(value) if np.isfinite(value) else None
    if centre is None or len(valid) < MIN_VALID_SHARE * len(draws) or not len(valid):
        return Interval(centre, None, None)
    low, high = np.quantile(valid, [(1 - level) / 2, (1 + level) / 2])
    return Interval(centre, float(low), float(high))
