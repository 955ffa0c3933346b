"""Where a policy wins and where it loses: every task at every sampling setting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selector.evaluation.metrics import Scores
from selector.statistics import Floats, Interval, percentile_interval, prompt_sums, resample_counts

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
                prompt_sums(scores.outcomes[name].token_seconds[mask], prompts, len(present))
                for name in (policy, baseline)
            ]
            ratio = _ratio(sums, len(scores.counts), seed, scores.level)
            cell = Cell(roots.task_names[task], roots.setting_values[setting], ratio, len(present), int(mask.sum()))
            table.append(cell)
    return table


def _ratio(sums: list[Floats], resamples: int, seed: int, level: float) -> Interval:
    """Ratio of throughputs from both policies' seconds by prompt."""
    seconds, base_seconds = (values.sum() for values in sums)
    value = float(base_seconds / seconds)
    if len(sums[0]) < MIN_INTERVAL_PROMPTS:
        return Interval(value, None, None)
    counts = resample_counts(len(sums[0]), resamples, seed)
    seconds, base_seconds = (counts @ values for values in sums)
    return percentile_interval(value, base_seconds / seconds, level)


class Losses(NamedTuple):
    """Where a policy is below the baseline.

    Attributes:
        roots: share of test roots whose `E - rate T` is lower, at the baseline's rate in their trajectory.
        prompts: share of test prompts with lower throughput.
        depth: mean of the throughput that a losing prompt loses, as a share.
        worst_prompt, worst_ratio: the prompt that loses most, and its ratio.
    """

    roots: float
    prompts: float
    depth: float
    worst_prompt: str
    worst_ratio: float


def losses(scores: Scores, policy: str, baseline: str = "best_static") -> Losses:
    """How often and how much `policy` is below `baseline`, by labels that carry noise."""
    ours, theirs = scores.outcomes[policy], scores.outcomes[baseline]
    gain = ours.efficiency - theirs.efficiency - (ours.seconds - theirs.seconds) / theirs.token_seconds
    roots, count = scores.roots, len(scores.roots.prompt_names)
    ratios = prompt_sums(theirs.token_seconds, roots.prompts, count) / prompt_sums(
        ours.token_seconds, roots.prompts, count
    )
    losing, worst = ratios < 1, int(ratios.argmin())
    depth = float((1 - ratios[losing]).mean()) if losing.any() else 0.0
    return Losses(
        float((gain < 0).mean()), float(losing.mean()), depth, roots.prompt_names[worst], float(ratios[worst])
    )
