"""Figures with intervals of all policies with one verifier, on the test roots."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from selector.offline.baselines import PolicyResult
from selector.offline.labelled_roots import LabelledRoots
from selector.statistics import Floats, Interval, percentile_interval, prompt_sums, resampled_rates

METRICS = (  # of every policy; where something can be copied, `ratio_to_best_copy_rule` is one more
    "tokens_per_second",
    "ratio_to_plain",
    "ratio_to_best_static",
    "ratio_to_best_static_per_setting",
    "ratio_to_best_root_branching",
    "ratio_to_best_verifier_static",
    "block_efficiency",
    "gap_recovered",
)


@dataclass(frozen=True)
class PolicyScores:
    """Throughputs of the policies with one verifier, and their bootstrap draws.

    Attributes:
        outcomes: by policy, on the test roots.
        counts: the resamples of prompts, `[resamples, prompts]`; the same for every verifier.
        level: of the intervals.
    """

    verifier: str
    roots: LabelledRoots
    outcomes: dict[str, PolicyResult]
    counts: Floats
    level: float

    @cached_property
    def rates(self) -> dict[str, tuple[float, Floats]]:
        """Tokens per second and its draws `[resamples]`, by policy."""
        names = list(self.outcomes)
        seconds = np.stack([self._sums(self.outcomes[name].token_seconds) for name in names], 1)
        draws = resampled_rates(self._tokens, seconds, self.counts)
        return {name: (self.outcomes[name].throughput, draws[:, column]) for column, name in enumerate(names)}

    def throughput(self, policy: str) -> Interval:
        """Tokens per second."""
        return percentile_interval(*self.rates[policy], self.level)

    def block_efficiency(self, policy: str) -> Interval:
        """Tokens a step."""
        steps = self.outcomes[policy].token_steps
        draws = resampled_rates(self._tokens, self._sums(steps)[:, None], self.counts)[:, 0]
        return percentile_interval(1 / steps.mean(), draws, self.level)

    def ratio(self, policy: str, baseline: str, other: PolicyScores | None = None) -> Interval:
        """Throughput over that of a baseline, of this verifier or of an`other`, on the same resamples.

        Undefined where there is no such baseline, as the copy rule where nothing is copied.
        """
        if baseline not in (other or self).rates:
            return Interval(None, None, None)
        (value, draws), (base, base_draws) = self.rates[policy], (other or self).rates[baseline]
        return percentile_interval(value / base, draws / base_draws, self.level)

    def gap_recovered(self, policy: str) -> Interval:
        """Share of the way from the best static tree (0) to the oracle (1); None where there is no such way."""
        value, draws = self.rates[policy]
        (static, static_draws), (best, best_draws) = self.rates["best_static"], self.rates["oracle"]
        gap, gap_draws = best - static, best_draws - static_draws
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(gap_draws > 0, (draws - static_draws) / gap_draws, np.nan)
        return percentile_interval((value - static) / gap if gap > 0 else np.nan, shares, self.level)

    @property
    def _tokens(self) -> Floats:
        return self._sums(np.ones(len(self.roots)))[:, None]

    def _sums(self, values: Floats) -> Floats:
        return prompt_sums(values, self.roots.prompts, len(self.roots.prompt_names))


def metric_rows(scores: PolicyScores, best_verifier: PolicyScores) -> list[dict[str, Any]]:
    """All metrics of all policies with one verifier; `best_verifier` has the fastest static tree on training roots."""
    rows = []
    for policy in scores.outcomes:
        figures = {
            "tokens_per_second": scores.throughput(policy),
            "ratio_to_plain": scores.ratio(policy, "plain"),
            "ratio_to_best_static": scores.ratio(policy, "best_static"),
            "ratio_to_best_static_per_setting": scores.ratio(policy, "best_static_per_setting"),
            "ratio_to_best_root_branching": scores.ratio(policy, "best_root_branching"),
            "ratio_to_best_verifier_static": scores.ratio(policy, "best_static", best_verifier),
            "block_efficiency": scores.block_efficiency(policy),
            "gap_recovered": scores.gap_recovered(policy),
        }
        if "best_copy_rule" in scores.outcomes:
            figures["ratio_to_best_copy_rule"] = scores.ratio(policy, "best_copy_rule")
        for metric, interval in figures.items():
            row = {"verifier": scores.verifier, "policy": policy, "metric": metric, **interval._asdict()}
            rows.append({**row, "n_prompts": len(scores.roots.prompt_names)})
    return rows
