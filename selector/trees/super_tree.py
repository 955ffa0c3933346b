"""One drawing that contains every action's tree: a long trunk with extra i.i.d. branches at each position."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from selector.trees.topology import Topology


@dataclass
class SuperTree:
    """The tree of action `(K, L1, L2)` is `trunk[: L1 + 1]` and the first `L2` nodes of `branches[L1][:K]`.

    Attributes:
        topology: a trie in breadth-first order (equal prefixes merged); leaves have different depths, and
            `children` has one entry for each distinct child: multiplicities belong to an action's tree.
        tokens: `[nodes]`, int64.
        draft_probs: `[nodes, columns]`; the row of a node without children may be anything.
        trunk: node at each depth `0 .. L1max + L2max` of the trunk.
        branches: `branches[i][j]` lists the nodes of the `j`-th branch below `trunk[i]`, without `trunk[i]`;
            `j == 0` is the trunk's own continuation. Given `trunk[i]` they are i.i.d.
        support: `[columns]`, ascending: the tokens of the columns; None when they are the vocabulary.
    """

    topology: Topology
    tokens: Tensor
    draft_probs: Tensor
    trunk: list[int]
    branches: list[list[list[int]]]
    support: Tensor | None = None
