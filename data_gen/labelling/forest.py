"""Super-trees in one trie: its nodes, the draft's distributions there, and the paths that make up each super-tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from data_gen.labelling.copied_chain import CopiedChain, add_chains
from selector.trees.expansion import Expansion
from selector.trees.nodes import Nodes
from selector.trees.super_tree_view import Drawing
from selector.verification.node_distributions import NodeDistributions


@dataclass
class DraftPath:
    """A trunk or a branch: `length` tokens below the node at depth `start` of the trunk `above`.

    A trunk hangs below the root node `root`, as all paths of its super-tree do. `uniform [>= length]`: numbers that
    its tokens are drawn with.
    """

    root: int
    above: DraftPath | None
    start: int
    length: int
    uniform: list[float]
    nodes: list[int] = field(default_factory=list)

    def runs(self, depth: int) -> bool:
        """Whether this path draws a token at `depth`."""
        return self.start < depth <= self.start + self.length

    @property
    def end(self) -> int:
        """The node from which the path draws its next token."""
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
        draft_probs: `[inner nodes, columns]`, float32, in the nodes' order.
        rows: row of `draft_probs` of each node; -1 for nodes below which nothing was drawn.
        trunks: one path a super-tree, those of the first root first; `branches[tree][i]` are the `Kmax - 1` extra
            ones at trunk position `i`.
        support: `[columns]`, ascending: the tokens of the columns; None when they are the vocabulary.
    """

    limits: Expansion
    num_roots: int
    parents: list[int]
    tokens: list[int]
    draft_probs: Tensor
    rows: list[int]
    trunks: list[DraftPath]
    branches: list[list[list[DraftPath]]]
    support: Tensor | None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def drafted_rows(self) -> int:
        """Rows that the draft has run below the roots' own."""
        return len(self.draft_probs) - self.num_roots

    def drawings(
        self,
        target_probs: Tensor,
        chains: Sequence[CopiedChain | None] = (),
        depth: int = 0,
        weights: Sequence[float] = (),
    ) -> list[Drawing]:
        """All super-trees, which share their nodes and distributions; `target_probs` is `[inner nodes, vocab]`.

        A drawing's inner nodes come first, as their distributions do; then those of `chains`, what could be copied at
        each root, down to `depth`, where only the target has distributions; then the others. `weights` are those of the
        roots, where these are ends of copied chains.
        """
        trie = add_chains(self.parents, self.tokens, self.rows, chains, depth)
        scored = [*self.inner, *trie.scored]
        order = dict.fromkeys([*scored, *range(len(trie.tokens))])
        place = {node: number for number, node in enumerate(order)}
        parents, tokens = [-1] * len(place), [0] * len(place)
        for node, (parent, token) in enumerate(zip(trie.parents, trie.tokens, strict=True)):
            parents[place[node]], tokens[place[node]] = place.get(parent, -1), token
        if trie.scored:
            target_probs = torch.cat([target_probs, torch.stack(list(trie.scored.values()))])
        distributions = NodeDistributions(target_probs, self.draft_probs, self.support)
        nodes = Nodes(distributions, parents, tokens, [place[node] for node in range(len(self), len(place))])
        copied = [[place[node] for node in chain] for chain in trie.chains]
        return [
            Drawing(
                nodes,
                *self.paths(tree, place),
                self.limits,
                copied[path.root] if copied else (),
                weights[path.root] if weights else 1.0,
            )
            for tree, path in enumerate(self.trunks)
        ]

    def paths(self, tree: int, number: Mapping[int, int] | Sequence[int]) -> tuple[list[int], list[list[list[int]]]]:
        """Trunk and branches of a super-tree (see `Drawing`), with `number` of each of the forest's nodes."""
        trunk, length = self.trunks[tree], self.limits.branch_length
        own_trunk = [number[trunk.root], *(number[node] for node in trunk.nodes)]
        own_branches = [
            [own_trunk[i + 1 : i + 1 + length], *([number[node] for node in path.nodes] for path in position)]
            for i, position in enumerate(self.branches[tree])
        ]
        return own_trunk, own_branches

    @property
    def inner(self) -> list[int]:
        """Nodes from which something is drawn: all that the target must score, since no label depends on a leaf."""
        return [node for node, row in enumerate(self.rows) if row >= 0]


def by_root(drawings: Sequence[Drawing]) -> Iterator[Drawing]:
    """Drawings in turn; super-trees below one root share much of what is computed, those of two roots nothing."""
    root = 0
    for drawing in drawings:
        if drawing.trunk[0] != root:
            root = drawing.trunk[0]
            drawing.distributions.forget()
        yield drawing
