"""A trie of super-trees, and each of them on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import torch
from torch import Tensor

from selector.trees.expansion import Expansion
from selector.trees.super_tree import SuperTree
from selector.trees.super_tree_view import Drawing, Nodes
from selector.trees.topology import Topology
from selector.verification.node_distributions import NodeLaws


@dataclass
class Walk:
    """A trunk or a branch: `length` tokens below the node at depth `start` of the trunk `above`.

    A trunk hangs below the root node `root`, as all walks of its super-tree do. `uniform [>= length]`: numbers that
    its tokens are drawn with.
    """

    root: int
    above: Walk | None
    start: int
    length: int
    uniform: list[float]
    nodes: list[int] = field(default_factory=list)

    def runs(self, depth: int) -> bool:
        """Whether this walk draws a token at `depth`."""
        return self.start < depth <= self.start + self.length

    @property
    def end(self) -> int:
        """Node from which it draws its next token."""
        if self.nodes:
            return self.nodes[-1]
        return self.above.nodes[self.start - 1] if self.above and self.start else self.root


@dataclass
class Forest:
    """`s` super-trees below each of `roots` root tokens, in one trie.

    Attributes:
        limits: largest `(K, L1, L2)`.
        num_roots: nodes `0 .. num_roots - 1` are the root tokens.
        parents, tokens: all nodes, level by level; -1 is the parent of a root.
        laws: `[inner nodes, columns]`, float32: draft laws on the columns of the draft's head, in the nodes' order.
        law_rows: row of `laws` of each node; -1 for nodes below which nothing was drawn.
        trunks: one walk a super-tree, those of the first root first; `branches[tree][i]` are the `Kmax - 1` extra
            ones at trunk position `i`.
        support, vocab_size: where the columns belong.
    """

    limits: Expansion
    num_roots: int
    parents: list[int]
    tokens: list[int]
    laws: Tensor
    law_rows: list[int]
    trunks: list[Walk]
    branches: list[list[list[Walk]]]
    support: Tensor | None
    vocab_size: int

    def __len__(self) -> int:
        return len(self.tokens)

    def super_tree(self, tree: int) -> tuple[SuperTree, list[int]]:
        """A super-tree on its own, and the forest's node of each of its nodes."""
        trunk, branches = self.trunks[tree], self.branches[tree]
        walks = [trunk, *(walk for position in branches for walk in position)]
        nodes = sorted({trunk.root, *(node for walk in walks for node in walk.nodes)})
        number = {node: index for index, node in enumerate(nodes)}
        topology = Topology()
        for node in nodes[1:]:
            topology.add(number[self.parents[node]])
        own_trunk, own_branches = self._paths(tree, number)
        tokens = torch.tensor([self.tokens[node] for node in nodes], device=self.laws.device)
        return SuperTree(topology, tokens, self._dense(nodes), own_trunk, own_branches, self.support), nodes

    def drawings(self, target_laws: Tensor) -> list[Drawing]:
        """All super-trees, which share their nodes and laws; `target_laws` is `[inner nodes, vocab]`.

        A drawing's nodes with laws come first, as the laws do, then those without.
        """
        without = count(len(self.laws))
        place = [row if row >= 0 else next(without) for row in self.law_rows]
        parents, tokens = [-1] * len(self), [0] * len(self)
        for node, parent in enumerate(self.parents):
            parents[place[node]] = place[parent] if parent >= 0 else -1
            tokens[place[node]] = self.tokens[node]
        nodes = Nodes(NodeLaws(target_laws, self.laws, self.support), parents, tokens)
        return [Drawing(nodes, *self._paths(tree, place), self.limits) for tree in range(len(self.trunks))]

    def _paths(self, tree: int, number: Mapping[int, int] | Sequence[int]) -> tuple[list[int], list[list[list[int]]]]:
        """Trunk and branches of a super-tree (see `SuperTree`), with `number` of each of the forest's nodes."""
        trunk, length = self.trunks[tree], self.limits.branch_length
        own_trunk = [number[trunk.root], *(number[node] for node in trunk.nodes)]
        own_branches = [
            [own_trunk[i + 1 : i + 1 + length], *([number[node] for node in walk.nodes] for walk in position)]
            for i, position in enumerate(self.branches[tree])
        ]
        return own_trunk, own_branches

    @property
    def inner(self) -> list[int]:
        """Nodes with a law; all that the target must score, since no label depends on its law at a leaf."""
        return [node for node, row in enumerate(self.law_rows) if row >= 0]

    def rows_of(self, laws: Tensor, nodes: Sequence[int]) -> Tensor:
        """Rows of `laws [inner nodes, ..]` for `nodes`; zeros for nodes that have none."""
        rows = torch.tensor([self.law_rows[node] for node in nodes], device=laws.device)
        return laws[rows.clamp(min=0)].mul_((rows >= 0)[:, None])

    def _dense(self, nodes: Sequence[int]) -> Tensor:
        """Draft laws over the vocabulary, zero outside the draft's head."""
        laws = self.rows_of(self.laws, nodes)
        if self.support is None:
            return laws
        return laws.new_zeros(len(nodes), self.vocab_size).index_copy_(1, self.support, laws)
