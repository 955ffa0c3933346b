"""Throughput ratios of a policy by task and sampling setting, and shares of roots and prompts where it loses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from selector.evaluation.metrics import PolicyScores
from selector.offline.baselines import PolicyResult
from selector.offline.labelled_roots import Mask
from selector.statistics import Interval, prompt_sums, resample_counts

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


def cell_table(scores: PolicyScores, policy: str, baseline: str = "best_static", seed: int = 0) -> list[Cell]:
    """One cell for each task and setting that occurs; intervals need at least four prompts."""
    roots, table = scores.roots, []
    for task in range(len(roots.task_names)):
        for setting in range(len(roots.setting_values)):
            mask = (roots.tasks == task) & (roots.settings == setting)
            if not mask.any():
                continue
            part = _part(scores, mask, (policy, baseline), seed)
            ratio, num_prompts = part.ratio(policy, baseline), len(part.roots.prompt_names)
            if num_prompts < MIN_INTERVAL_PROMPTS:
                ratio = Interval(ratio.value, None, None)
            names = roots.task_names[task], roots.setting_values[setting]
            table.append(Cell(*names, ratio, num_prompts, len(part.roots)))
    return table


def _part(scores: PolicyScores, mask: Mask, policies: Sequence[str], seed: int) -> PolicyScores:
    """Some policies on some roots, whole trajectories, with resamples of the prompts that these are of."""
    roots = scores.roots.subset(mask)
    outcomes = {
        name: PolicyResult(played.efficiency[mask], played.seconds[mask], played.actions[:, mask], roots.trajectories)
        for name, played in scores.outcomes.items() if name in policies
    }  # fmt: skip
    counts = resample_counts(len(roots.prompt_names), len(scores.counts), seed)
    return PolicyScores(scores.verifier, roots, outcomes, counts, scores.level)


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


def losses(scores: PolicyScores, policy: str, baseline: str = "best_static") -> Losses:
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
