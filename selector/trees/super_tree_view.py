"""View of a super-tree for labels: paths that serve a chain, branches that serve a tree, and averages over them.

Every action's tree lies many times in one drawing, and any average of them, with weights fixed beforehand, has the
right mean. A chain is read at each depth along all branches of the earliest trunk position that reaches so deep.
A tree of `K` branches is read twice at its trunk position: from the first `K` branches, and, in reverse, from the
last `K`; for `2 K <= Kmax` these share no token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from selector.trees.expansion import Expansion
from selector.trees.nodes import Nodes
from selector.verification.node_distributions import Drafts

ChildList = tuple[int, tuple[int, ...]]
"""A node, and child nodes of it, with multiplicity."""


@dataclass(frozen=True)
class Estimates:
    """Unbiased estimates `g_d` of `P(tau >= d)` for one drawing; `E[tau + 1] = 1 + sum_d g_d`.

    Attributes:
        chain: `g_1 .. g_(L1max + L2max)` of a single path; also of every tree up to its trunk's end.
        trees: `g_(L1 + 1) .. g_(L1 + L2max)` of `K >= 2` branches below a trunk of `L1`, by `(K, L1)`.
            They do not change when the tree grows deeper: every `L2` is a prefix sum. A verifier that looks at
            one branch only has none: its trees are chains.
    """

    chain: list[float]
    trees: dict[tuple[int, int], list[float]]


class Reading(NamedTuple):
    """Branches (nodes of each) below `trunk[position]`, in one order; its first `K` are one tree."""

    position: int
    start: int
    branches: Sequence[Sequence[int]]

    def levels(self, num_branches: int) -> list[dict[int, tuple[int, ...]]]:
        """Child nodes, with multiplicity, of each node that is not a leaf, level by level, for the first `K`."""
        chosen = self.branches[:num_branches]
        ends, levels = [self.start] * num_branches, []
        for step in range(len(chosen[0])):
            level: dict[int, list[int]] = {}
            for end, branch in zip(ends, chosen, strict=True):
                level.setdefault(end, []).append(branch[step])
            levels.append({node: tuple(children) for node, children in level.items()})
            ends = [branch[step] for branch in chosen]
        return levels


class Drawing:
    """A super-tree among such nodes: a long trunk with extra i.i.d. branches at each position.

    The tree of action `(K, L1, L2)` is `trunk[: L1 + 1]` and the first `L2` nodes of `branches[L1][:K]`.

    Attributes:
        trunk: node at each depth `0 .. L1max + L2max` of the trunk.
        branches: `branches[i][j]` lists the nodes of the `j`-th branch below `trunk[i]`, without `trunk[i]`;
            `j == 0` is the trunk's own continuation. Given `trunk[i]` they are i.i.d.
        limits: largest `(K, L1, L2)`.
        nodes: its own, parents first; `all_nodes` are those it lies among.
        copied: nodes of what could be copied from the root on, in order; they need not be the drawing's own.
        weight: chance that what is copied above the root is accepted; 1 where the step starts at the root.
        distributions, parents, tokens, target, draft: as in `Nodes`.
    """

    def __init__(
        self,
        nodes: Nodes,
        trunk: Sequence[int],
        branches: Sequence[Sequence[Sequence[int]]],
        limits: Expansion,
        copied: Sequence[int] = (),
        weight: float = 1.0,
    ) -> None:
        self.trunk, self.branches, self.limits, self.all_nodes, self.copied = trunk, branches, limits, nodes, copied
        self.weight = weight
        self.nodes = sorted({*trunk, *(node for below in branches for branch in below for node in branch)})
        self.distributions, self.parents, self.tokens = nodes.distributions, nodes.parents, nodes.tokens
        self.target, self.draft = nodes.target, nodes.draft

    @cached_property
    def readings(self) -> list[Reading]:
        """Two orders at each trunk position."""
        if self.limits.num_branches < 2 or self.limits.branch_length == 0:
            return []
        chosen = [
            (position, self.branches[position][: self.limits.num_branches])
            for position in range(self.limits.trunk_length + 1)
        ]
        return [Reading(i, self.trunk[i], order) for i, below in chosen for order in (below, below[::-1])]

    @cached_property
    def trees(self) -> list[tuple[tuple[int, int], list[dict[int, tuple[int, ...]]]]]:
        """`((K, L1), levels)` of each reading and each `K >= 2`."""
        counts = range(2, self.limits.num_branches + 1)
        return [((k, reading.position), reading.levels(k)) for reading in self.readings for k in counts]

    @cached_property
    def inner_lists(self) -> list[ChildList]:
        """Drafts below which something else is read: each node alone, as on a chain, and the trees' inner levels."""
        chains = [(self.parents[node], (node,)) for node in self.nodes[1:]]
        return list(
            dict.fromkeys(
                chains + [item for _, levels in self.trees for level in levels[:-1] for item in level.items()]
            )
        )

    @cached_property
    def end_lists(self) -> list[ChildList]:
        """Drafts of the trees' last levels."""
        return list(dict.fromkeys(item for _, levels in self.trees for item in levels[-1].items()))

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Each node that something is drafted below, with each number of drafts."""
        trees = [
            (node, len(children)) for _, levels in self.trees for level in levels for node, children in level.items()
        ]
        return list(dict.fromkeys(trees + [(node, 1) for nodes in self.chain_nodes for node in nodes]))

    @cached_property
    def drafts(self) -> dict[ChildList, Drafts]:
        """All of those lists, as a solver takes them."""
        return {
            (node, children): self.all_nodes.drafts(node, children)
            for node, children in dict.fromkeys(self.inner_lists + self.end_lists)
        }

    @cached_property
    def chain_nodes(self) -> list[list[int]]:
        """For each `d` the nodes at depth `d - 1` that a chain's `g_d` is averaged over, i.i.d. given the trunk."""
        length, nodes = self.limits.branch_length, []
        for depth in range(self.limits.max_depth):
            position = max(
                0, depth + 1 - length
            )  # the nodes at `depth` must be inner: leaves have no draft distribution
            ends = [branch[depth - position - 1] for branch in self.branches[position]] if depth > position else []
            nodes.append(ends or [self.trunk[depth]])
        return nodes

    def average_chain(self, values: dict[int, float]) -> list[float]:
        """`g_1, g_2, ..` of a chain from each node's contribution to its children's depth."""
        return [sum(values[node] for node in nodes) / len(nodes) for nodes in self.chain_nodes]


def average_trees(estimates: Sequence[tuple[tuple[int, int], list[float]]]) -> dict[tuple[int, int], list[float]]:
    """Mean over the readings of each `(K, L1)`."""
    groups: dict[tuple[int, int], list[list[float]]] = {}
    for key, values in estimates:
        groups.setdefault(key, []).append(values)
    return {key: [sum(depth) / len(depth) for depth in zip(*values, strict=True)] for key, values in groups.items()}
