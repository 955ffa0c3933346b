"""Baselines that a selector is measured against: plain decoding, the best static trees, and the oracle.

Whatever is chosen is chosen on training roots and scored on test roots; `throughput` says how roots add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from selector.offline.labelled_roots import LabelledRoots, Mask
from selector.offline.throughput import oracle_actions, throughput, token_seconds
from selector.statistics import Floats, Ints
from selector.trees.expansion import ActionSpace, Expansion

LONGEST_LEAST = 12  # tokens that a rule may ask to match; longer matches are mostly texts that loop
RULE_ROUNDS = 3
SMALL_GAP = 0.01  # of the best static tree's throughput: what choosing itself may cost, see `selector_seconds`


@dataclass(frozen=True)
class PolicyResult:
    """Tokens and seconds of a policy at each root.

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


def score_policy(roots: LabelledRoots, actions: Ints, times: Floats) -> PolicyResult:
    """Score chosen `actions [roots]` or `[runs, roots]` with the labels of all samples and with `times`."""
    actions = np.atleast_2d(actions)
    rows = np.arange(len(roots))
    efficiency, seconds = roots.efficiency[rows, actions].mean(0), times[rows, actions].mean(0)
    return PolicyResult(efficiency, seconds, actions, roots.trajectories)


def plain_decoding(roots: LabelledRoots) -> PolicyResult:
    """One token a target pass."""
    nothing = np.empty((0, len(roots)), dtype=np.int64)
    return PolicyResult(np.ones(len(roots)), roots.plain, nothing, roots.trajectories)


def no_drafting(roots: LabelledRoots) -> PolicyResult:
    """The decoder without speculation: what it gains over plain decoding is the engine's."""
    return score_policy(roots, np.full(len(roots), roots.space.index(Expansion(1, 0, 0))), roots.times)


def best_action(roots: LabelledRoots, allowed: Mask | None = None) -> int:
    """The drafted action of highest throughput over `roots` when it is always taken, among those `allowed [drafted]`.

    Actions that copy are none: one that is always taken is a rule, which looks for something to copy.
    """
    rates = throughput(roots.efficiency, roots.times, roots.trajectories)[: len(roots.space.drafted)]
    return int(np.argmax(rates if allowed is None else np.where(allowed, rates, -np.inf)))


def best_per_setting(train: LabelledRoots, roots: LabelledRoots) -> Ints:
    """`[roots]`: the best static action on `train` of each root's sampling setting, the paper's static baseline.

    A setting that no training root has takes the best action of all training roots.
    """
    actions = np.full(len(roots), best_action(train))
    for place in np.unique(train.settings):
        mine = np.flatnonzero([value == train.setting_values[place] for value in roots.setting_values])
        actions[np.isin(roots.settings, mine)] = best_action(train.subset(train.settings == place))
    return actions


def chains(space: ActionSpace) -> Mask:
    """Drafted actions without branches, K = 1; not speculating is the chain of length 0."""
    return np.array([expansion.num_branches == 1 for expansion in space.drafted])


def root_branching(space: ActionSpace) -> Mask:
    """Drafted actions that branch at the root, L1 = 0, up to the space's branch length (no longer chains)."""
    longest = space.limits.branch_length
    return np.array([e.trunk_length == 0 and e.branch_length <= longest for e in space.drafted])


class CopyRule(NamedTuple):
    """A rule without a network: copy where the earlier match is long enough, else draft one tree.

    Attributes:
        least: shortest match that is copied, in tokens.
        copy, tree: actions.
    """

    least: int
    copy: int
    tree: int

    def actions(self, roots: LabelledRoots) -> Ints:
        """`[roots]`."""
        return np.where(roots.match >= self.least, self.copy, self.tree)


def copies_anything(roots: LabelledRoots) -> bool:
    """Whether some root has what could be copied, and an action that does."""
    return bool(roots.space.copies) and bool(roots.match.any())


def best_copy_rule(roots: LabelledRoots) -> CopyRule:
    """The rule of highest throughput over `roots`, some of which have what could be copied."""
    rules = [_rule_from(roots, least) for least in range(1, LONGEST_LEAST + 1) if (roots.match >= least).any()]
    return max(rules, key=lambda rule: score_policy(roots, rule.actions(roots), roots.times).throughput)


def _rule_from(roots: LabelledRoots, least: int) -> CopyRule:
    """The best copy and tree for one length: largest `sum (E - rate T)` at the rule's own rate (Dinkelbach 1967)."""
    copied, drafted = roots.match >= least, len(roots.space.drafted)
    rule = CopyRule(least, drafted, best_action(roots))
    for _ in range(RULE_ROUNDS):
        rate = score_policy(roots, rule.actions(roots), roots.times).throughput
        value = roots.efficiency - rate * roots.times
        copy = drafted + int(value[copied, drafted:].sum(0).argmax())
        rule = CopyRule(least, copy, int(value[~copied, :drafted].sum(0).argmax()))
    return rule


def static_policies(train: LabelledRoots, test: LabelledRoots) -> dict[str, PolicyResult]:
    """The static policies by name, chosen on `train` and scored on `test`."""
    choices = {
        "best_static": np.full(len(test), best_action(train)),
        "best_static_per_setting": best_per_setting(train, test),
        "best_chain": np.full(len(test), best_action(train, chains(train.space))),
        "best_root_branching": np.full(len(test), best_action(train, root_branching(train.space))),
    }
    if copies_anything(train):
        choices["best_copy_rule"] = best_copy_rule(train).actions(test)
    return {name: score_policy(test, actions, test.times) for name, actions in choices.items()}


def oracle(roots: LabelledRoots) -> PolicyResult:
    """The best actions of every trajectory, chosen on one half of the samples and scored on the other, both ways.

    Scoring on the samples that chose would reward noise. This way noise costs instead, so with few samples the
    figure is a lower bound of what a perfect selector reaches. It pays no time for choosing.
    """
    rows = np.arange(len(roots))
    actions = np.stack([oracle_actions(roots.halves[:, half], roots.times, roots.trajectories) for half in (0, 1)])
    scores = np.stack([roots.halves[rows, 1 - half, actions[half]] for half in (0, 1)])
    return PolicyResult(scores.mean(0), roots.times[rows, actions].mean(0), actions, roots.trajectories)


def oracle_in_sample(roots: LabelledRoots) -> PolicyResult:
    """The oracle chosen and scored on the same samples: flattered by noise, an upper bound."""
    return score_policy(roots, oracle_actions(roots.efficiency, roots.times, roots.trajectories), roots.times)


@dataclass(frozen=True)
class OracleGap:
    """What a perfect choice per root would gain over the best static action, as shares of its throughput.

    Attributes:
        best_static: the best static action.
        throughput: its tokens per second; `undrafted` without drafting, `plain` of transformers' `generate`.
        gap: of the `oracle`, whose choices label noise spoils, so the true gap is larger.
        optimistic: of `oracle_in_sample`, which label noise flatters.
    """

    best_static: Expansion
    throughput: float
    undrafted: float
    plain: float
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


def oracle_gap(roots: LabelledRoots) -> OracleGap:
    """Measure the gap on `roots`, which also choose the static action; neither side pays for choosing."""
    best = best_action(roots)
    static = score_policy(roots, np.full(len(roots), best), roots.times).throughput
    undrafted, plain = no_drafting(roots).throughput, plain_decoding(roots).throughput
    crossed, same = oracle(roots).throughput, oracle_in_sample(roots).throughput
    return OracleGap(roots.space.drafted[best], static, undrafted, plain, crossed / static - 1, same / static - 1)
