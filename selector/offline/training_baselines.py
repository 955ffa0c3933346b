"""Static actions, and how much a perfect choice per root would gain over them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selector.dataset.records import RootDataset
from selector.latency import LatencyProfile
from selector.offline.throughput import best_actions, number_trajectories, throughput
from selector.trees.expansion import Expansion

SMALL_GAP = 0.02


def throughputs(efficiency: Tensor, times: Tensor, trajectories: Tensor) -> Tensor:
    """`[actions]`, float64: tokens a second of always taking one action, from `[N, actions]` each."""
    rates = throughput(efficiency.double().numpy(), times.double().numpy(), trajectories.numpy())
    return torch.from_numpy(rates)


def throughput_of(actions: Tensor, efficiency: Tensor, times: Tensor, trajectories: Tensor) -> float:
    """Tokens a second of taking `actions [N]`."""
    chosen = actions[:, None]
    return float(throughputs(efficiency.gather(1, chosen), times.gather(1, chosen), trajectories))


def best_action(efficiency: Tensor, times: Tensor, trajectories: Tensor) -> int:
    """The best static action."""
    return int(throughputs(efficiency, times, trajectories).argmax())


def actions_per_setting(
    settings: Tensor, efficiency: Tensor, times: Tensor, trajectories: Tensor, train: Tensor
) -> Tensor:
    """`[N]`: for every root the best static action of its sampling setting on the `train [N]` (bool) roots.

    A setting that no training root has takes the best action of all training roots.
    """
    overall = best_action(efficiency[train], times[train], trajectories[train])
    actions = torch.full((len(settings),), overall)
    for setting in torch.unique(settings, dim=0):
        mine = (settings == setting).all(1)
        known = mine & train
        if known.any():
            actions[mine] = best_action(efficiency[known], times[known], trajectories[known])
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
    trajectories = torch.from_numpy(number_trajectories(dataset.prompt_ids, dataset.settings))
    times = profile.action_times(dataset.context_length.double(), space)
    halves, mean = dataset.efficiency[verifier].double(), dataset.mean_efficiency(verifier).double()
    best = best_action(mean, times, trajectories)
    static = throughput_of(torch.full((len(dataset),), best), mean, times, trajectories)

    def chosen_on(labels: Tensor) -> Tensor:
        return torch.from_numpy(best_actions(labels.numpy(), times.numpy(), trajectories.numpy()))

    crossed = [throughput_of(chosen_on(halves[:, a]), halves[:, 1 - a], times, trajectories) for a in (0, 1)]
    same = throughput_of(chosen_on(mean), mean, times, trajectories)
    return OracleGap(space.expansions[best], static, sum(crossed) / 2 / static - 1, same / static - 1)
