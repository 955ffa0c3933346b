"""Static actions, and how much a perfect choice per root would gain over them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selector.latency import LatencyProfile
from selector.records import RootDataset
from selector.trees.expansion import Expansion

SMALL_GAP = 0.02


def throughputs(efficiency: Tensor, times: Tensor) -> Tensor:
    """`[actions]`: tokens a second of always taking one action, from `[N, actions]` each: sum over sum."""
    return efficiency.double().sum(0) / times.double().sum(0)


def throughput_of(actions: Tensor, efficiency: Tensor, times: Tensor) -> float:
    """Tokens a second of taking `actions [N]`: every root is one step, long steps weigh by their time."""
    chosen = actions[:, None]
    return float(efficiency.gather(1, chosen).double().sum() / times.gather(1, chosen).double().sum())


def best_action(efficiency: Tensor, times: Tensor) -> int:
    """The best static action."""
    return int(throughputs(efficiency, times).argmax())


def actions_per_setting(settings: Tensor, efficiency: Tensor, times: Tensor, train: Tensor) -> Tensor:
    """`[N]`: for every root the best static action of its sampling setting on the `train [N]` (bool) roots.

    A setting that no training root has takes the best action of all training roots.
    """
    overall = best_action(efficiency[train], times[train])
    actions = torch.full((len(settings),), overall)
    for setting in torch.unique(settings, dim=0):
        mine = (settings == setting).all(1)
        if (mine & train).any():
            actions[mine] = best_action(efficiency[mine & train], times[mine & train])
    return actions


@dataclass(frozen=True)
class OracleGap:
    """What a perfect choice per root would gain over the best static action, as shares of its throughput.

    Attributes:
        best_static: the best static action.
        throughput: its tokens per second.
        gap: of the oracle that chooses on one half of the samples and is scored on the other. Label noise spoils
            its choices, so the true gap is larger.
        optimistic: of the oracle that chooses and is scored on the same samples; label noise flatters it.
    """

    best_static: Expansion
    throughput: float
    gap: float
    optimistic: float

    @property
    def too_small(self) -> bool:
        return self.gap < SMALL_GAP

    def sentence(self) -> str:
        """The gap in plain words."""
        found = f"the best action a root, chosen on half of the samples, gains {self.gap:+.1%} on the other half"
        if not self.too_small:
            return f"{found}: there is something to learn."
        reason = "more samples a root would tell" if self.optimistic > 2 * SMALL_GAP else "the static action is enough"
        return f"{found}: too little to learn from these labels (at most {self.optimistic:+.1%}; {reason})."


def oracle_gap(dataset: RootDataset, verifier: str, profile: LatencyProfile) -> OracleGap:
    """Measure the gap on all roots of `dataset`; neither side pays for choosing."""
    space = dataset.manifest.space
    times = profile.action_times(dataset.context_length.double(), space)
    halves, mean = dataset.efficiency[verifier], dataset.mean_efficiency(verifier)
    best = best_action(mean, times)
    static = throughput_of(torch.full((len(dataset),), best), mean, times)
    crossed = [throughput_of((halves[:, a] / times).argmax(1), halves[:, 1 - a], times) for a in (0, 1)]
    same = throughput_of((mean / times).argmax(1), mean, times)
    return OracleGap(space.expansions[best], static, sum(crossed) / 2 / static - 1, same / static - 1)
