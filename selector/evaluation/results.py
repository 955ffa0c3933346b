"""Results of one verifier, before they are drawn or put into words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from selector.evaluation.ablations import StudyResult
from selector.evaluation.cells import Cell, Losses
from selector.evaluation.metrics import PolicyScores
from selector.offline.baselines import SMALL_GAP, score_policy
from selector.statistics import Floats, Interval
from selector.trees.expansion import ActionSpace, Expansion


@dataclass(frozen=True)
class VerifierResult:
    """One verifier's scores; with a selector also where it wins and loses, and its predictions.

    Attributes:
        static_rate: throughput of its best static tree on the training prompts.
        predicted: `E[tau + 1]` by the first seed's regressor, `[roots, actions]`.
        cells: ratios of the selector to the best static tree by task and setting.
        losses: how often and how much the selector is below the best static tree.
        findings: of the study.
    """

    scores: PolicyScores
    static_rate: float
    predicted: Floats | None = None
    cells: tuple[Cell, ...] = ()
    losses: Losses | None = None
    findings: tuple[StudyResult, ...] = ()

    @property
    def verifier(self) -> str:
        return self.scores.verifier

    @property
    def selector(self) -> bool:
        """Whether there is one."""
        return "selector" in self.scores.outcomes

    @property
    def space(self) -> ActionSpace:
        return self.scores.roots.space

    @property
    def best_static(self) -> Expansion:
        """The best static tree on the training prompts."""
        return self.space.drafted[int(self.scores.outcomes["best_static"].actions[0, 0])]

    @property
    def losing_cells(self) -> list[Cell]:
        """Cells more than half a percent below the best static tree."""
        return [cell for cell in self.cells if cell.loses]

    def cell(self, task: str, setting: tuple[float, float]) -> Cell | None:
        """The cell of a task at a setting; None where no test root has both."""
        return next((cell for cell in self.cells if (cell.task, cell.setting) == (task, setting)), None)

    @property
    def gap_too_small(self) -> bool:
        """Whether the labels show no gain of the oracle over the best static tree that would be worth choosing."""
        gap = self.scores.ratio("oracle", "best_static")
        return gap.value is None or gap.low is None or gap.low <= 1 or gap.value < 1 + SMALL_GAP

    def action_shares(self, policy: str) -> Floats:
        """How often each action is chosen over test roots and runs, `[actions]`."""
        actions = self.scores.outcomes[policy].actions.ravel()
        counts = np.bincount(actions, minlength=len(self.space)).astype(np.float64)
        shares: Floats = counts / max(counts.sum(), 1)
        return shares

    def run_ratios(self, policy: str) -> list[Interval]:
        """Throughput over that of the best static tree, run by run (one run a seed), on the same resamples."""
        scores, static = self.scores, self.scores.outcomes["best_static"]
        times, actions = scores.roots.selector_times, scores.outcomes[policy].actions
        runs = [{"run": score_policy(scores.roots, chosen, times), "best_static": static} for chosen in actions]
        return [replace(scores, outcomes=outcomes).ratio("run", "best_static") for outcomes in runs]

    def calibration(self) -> dict[str, list[Bin]]:
        """Reliability of the first seed's regressor over all actions, and at the actions that it chooses itself."""
        if self.predicted is None:
            return {}
        labels, rows = self.scores.roots.efficiency, np.arange(len(self.predicted))
        chosen = self.scores.outcomes["selector_regressor"].actions[0]
        return {
            "all actions": reliability(self.predicted, labels),
            "chosen actions": reliability(self.predicted[rows, chosen], labels[rows, chosen]),
        }


class Bin(NamedTuple):
    """Roots and actions of similar prediction: means of prediction and label, and how many they are."""

    predicted: float
    observed: float
    size: int


def reliability(predicted: Floats, observed: Floats, bins: int = 10) -> list[Bin]:
    """Cut at the deciles of `predicted`; arrays of any equal shape. Fewer bins where predictions coincide."""
    predicted, observed = predicted.ravel(), observed.ravel()
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, bins + 1)[1:-1]))
    place = np.digitize(predicted, edges)
    return [
        Bin(float(predicted[place == b].mean()), float(observed[place == b].mean()), int((place == b).sum()))
        for b in np.unique(place)
    ]
