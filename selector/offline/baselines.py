"""What a selector is measured against: plain decoding, the best static trees, and the oracle.

Whatever is chosen is chosen on training roots and scored on test roots; `selector.throughput` says how roots add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selector.offline.labelled_roots import Ints, Mask, Roots
from selector.offline.throughput import best_actions, throughput, token_seconds
from selector.statistics import Floats
from selector.trees.expansion import ActionSpace


@dataclass(frozen=True)
class Outcome:
    """What a policy yields at each test root.

    Attributes:
        efficiency: expected tokens of the step, `[roots]`.
        seconds: time of the step, `[roots]`.
        actions: chosen actions, `[runs, roots]`; efficiency and seconds are means over the runs (several seeds of
            a selector, two directions of the oracle). Plain decoding has none: `[0, roots]`.
        trajectories: of the roots, `[roots]`.
    """

    efficiency: Floats
    seconds: Floats
    actions: Ints
    trajectories: Ints

    @property
    def throughput(self) -> float:
        """Tokens per second."""
        return float(throughput(self.efficiency, self.seconds, self.trajectories))

    @property
    def token_seconds(self) -> Floats:
        """Seconds a token, `[roots]`."""
        return token_seconds(self.efficiency, self.seconds, self.trajectories)

    @property
    def token_steps(self) -> Floats:
        """Steps a token, `[roots]`."""
        return token_seconds(self.efficiency, np.ones_like(self.seconds), self.trajectories)


def play(roots: Roots, actions: Ints, times: Floats) -> Outcome:
    """Score chosen `actions [roots]` or `[runs, roots]` with the labels of all samples and with `times`."""
    actions = np.atleast_2d(actions)
    rows = np.arange(len(roots))
    efficiency, seconds = roots.efficiency[rows, actions].mean(0), times[rows, actions].mean(0)
    return Outcome(efficiency, seconds, actions, roots.trajectories)


def plain_decoding(roots: Roots) -> Outcome:
    """One token a target pass."""
    nothing = np.empty((0, len(roots)), dtype=np.int64)
    return Outcome(np.ones(len(roots)), roots.plain, nothing, roots.trajectories)


def best_action(roots: Roots, allowed: Mask | None = None) -> int:
    """The action of highest throughput over `roots` when it is always taken, among those `allowed [actions]`."""
    rates = throughput(roots.efficiency, roots.times, roots.trajectories)
    return int(np.argmax(rates if allowed is None else np.where(allowed, rates, -np.inf)))


def best_actions_per_setting(train: Roots) -> dict[tuple[float, float], int]:
    """The best action of each sampling setting that occurs in `train`: the paper's static baseline."""
    masks = {value: train.settings == index for index, value in enumerate(train.setting_values)}
    return {value: best_action(train.subset(mask)) for value, mask in masks.items()}


def chains(space: ActionSpace) -> Mask:
    """Actions without branches, K = 1; not speculating is the chain of length 0."""
    return np.array([expansion.num_branches == 1 for expansion in space.expansions])


def root_branching(space: ActionSpace) -> Mask:
    """Actions that branch at the root, L1 = 0, up to the space's branch length (so K = 1 has no longer chains)."""
    longest = space.limits.branch_length
    return np.array([e.trunk_length == 0 and e.branch_length <= longest for e in space.expansions])


def static_opponents(train: Roots, test: Roots) -> dict[str, Outcome]:
    """The static policies by name, chosen on `train` and scored on `test`.

    At a setting that training never saw, the best action of that setting is the best one overall.
    """
    overall = best_action(train)
    known = best_actions_per_setting(train)
    per_setting = np.array([known.get(value, overall) for value in test.setting_values])
    choices = {
        "best_static": np.full(len(test), overall),
        "best_static_per_setting": per_setting[test.settings],
        "best_chain": np.full(len(test), best_action(train, chains(train.space))),
        "best_root_branching": np.full(len(test), best_action(train, root_branching(train.space))),
    }
    return {name: play(test, actions.astype(np.int64), test.times) for name, actions in choices.items()}


def oracle(roots: Roots) -> Outcome:
    """The best actions of every trajectory, chosen on one half of the samples and scored on the other, both ways.

    Scoring on the samples that chose would reward noise. This way noise costs instead, so with few samples the
    figure is a lower bound of what a perfect selector reaches. It pays no time for choosing.
    """
    rows = np.arange(len(roots))
    actions = np.stack([best_actions(roots.halves[:, half], roots.times, roots.trajectories) for half in (0, 1)])
    scores = np.stack([roots.halves[rows, 1 - half, actions[half]] for half in (0, 1)])
    return Outcome(scores.mean(0), roots.times[rows, actions].mean(0), actions, roots.trajectories)


def oracle_in_sample(roots: Roots) -> Outcome:
    """The oracle chosen and scored on the same samples: flattered by noise, an upper bound."""
    return play(roots, best_actions(roots.efficiency, roots.times, roots.trajectories), roots.times)
