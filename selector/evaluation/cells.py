"""Where a policy wins and where it loses: every task at every sampling setting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selector.evaluation.bootstrap import Floats, Interval, percentile_interval, prompt_sums, resample_counts
from selector.evaluation.metrics import Scores

MIN_INTERVAL_PROMPTS = 4
LOSS = 0.995


class Cell(NamedTuple):
    """Throughput ratio of a policy to a baseline on the test roots of one task at one setting."""

    task: str
    setting: tuple[float, float]
    ratio: Interval
    num_prompts: int
    num_roots: int

    @property
    def loses(self) -> bool:
        """More than half a percent below the baseline."""
        return self.ratio.value is not None and self.ratio.value < LOSS


def cell_table(scores: Scores, policy: str, baseline: str = "best_static", seed: int = 0) -> list[Cell]:
    """One cell for each task and setting that occurs; intervals need at least four prompts."""
    roots, table = scores.roots, []
    for task in range(len(roots.task_names)):
        for setting in range(len(roots.setting_values)):
            mask = (roots.tasks == task) & (roots.settings == setting)
            if not mask.any():
                continue
            present, prompts = np.unique(roots.prompts[mask], return_inverse=True)
            sums = [
                prompt_sums(values[mask], prompts, len(present))
                for name in (policy, baseline)
                for values in (scores.outcomes[name].efficiency, scores.outcomes[name].seconds)
            ]
            ratio = _ratio(sums, len(scores.counts), seed, scores.level)
            cell = Cell(roots.task_names[task], roots.setting_values[setting], ratio, len(present), int(mask.sum()))
            table.append(cell)
    return table


def _ratio(sums: list[Floats], resamples: int, seed: int, level: float) -> Interval:
    """Ratio of `E / T` to `E0 / T0` from their sums over prompts `[E, T, E0, T0]`."""
    tokens, seconds, base_tokens, base_seconds = (values.sum() for values in sums)
    value = float(tokens / seconds / (base_tokens / base_seconds))
    if len(sums[0]) < MIN_INTERVAL_PROMPTS:
        return Interval(value, None, None)
    counts = resample_counts(len(sums[0]), resamples, seed)
    tokens, seconds, base_tokens, base_seconds = (counts @ values for values in sums)
    return percentile_interval(value, tokens / seconds / (base_tokens / base_seconds), level)


def losing_share(scores: Scores, policy: str, baseline: str = "best_static") -> float:
    """Share of test roots where the policy's `E / T` is below the baseline's, by labels that carry noise."""
    ours, theirs = scores.outcomes[policy], scores.outcomes[baseline]
    return float((ours.efficiency / ours.seconds < theirs.efficiency / theirs.seconds).mean())
