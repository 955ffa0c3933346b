"""Paired bootstrap over prompts: every policy sees the same resampled prompts.

Roots of one prompt are not independent, so prompts are resampled, never roots. All figures of the report are
functions of per-prompt sums, hence one matrix product draws every resample of every policy.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MIN_VALID_SHARE = 0.975
Verdict = Literal["gain", "loss", "no difference shown"]


class Interval(NamedTuple):
    """A value with its percentile interval; None where it is undefined (see `percentile_interval`)."""

    value: float | None
    low: float | None
    high: float | None

    def __format__(self, spec: str) -> str:
        """`f"{interval:.3f}"` is `1.234 [1.200, 1.268]`; a dash where it is undefined."""
        value, low, high = (as_text(part, spec) for part in self)
        return value if self.low is None else f"{value} [{low}, {high}]"

    @property
    def verdict(self) -> Verdict:
        """On a ratio: `gain` or `loss` where the whole interval lies on one side of 1."""
        if self.low is not None and self.low > 1:
            return "gain"
        return "loss" if self.high is not None and self.high < 1 else "no difference shown"


def as_text(value: float | None, spec: str) -> str:
    """A number for people; a dash where it is undefined."""
    return "–" if value is None else format(value, spec).replace("-", "−")


def prompt_sums(values: Floats, prompts: NDArray[np.int64], num_prompts: int) -> Floats:
    """Sum `values [roots]` over the roots of each prompt `[prompts]`; `prompts [roots]` numbers them from 0."""
    return np.bincount(prompts, weights=values, minlength=num_prompts).astype(np.float64)


def resample_counts(num_prompts: int, resamples: int, seed: int) -> Floats:
    """How often each prompt is drawn in each resample: `[resamples, prompts]`, rows sum to `num_prompts`."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(num_prompts, np.full(num_prompts, 1 / num_prompts), size=resamples).astype(np.float64)


def resampled_rates(tokens: Floats, costs: Floats, counts: Floats) -> Floats:
    """Tokens per cost of each resample and policy, `[resamples, policies]`, from sums by prompt.

    `costs [prompts, policies]` are seconds or steps; `tokens [prompts, policies]`, or `[prompts, 1]` where all
    policies make the same tokens.
    """
    rates: Floats = (counts @ tokens) / (counts @ costs)
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
