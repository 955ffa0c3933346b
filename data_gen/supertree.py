"""Drawings that label every action at once: `s` super-trees below one root, drafted together in one trie.

A super-tree is a trunk of `L1max + L2max` tokens with `Kmax - 1` more branches of `L2max` tokens at each trunk
position `0 .. L1max`; the trunk's own continuation is one more i.i.d. branch there. All branches of all `s`
super-trees advance together, one draft pass a level over the distinct nodes; equal prefixes are one node,
also between super-trees, which at low temperature leaves a fraction of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from selector.distributions import Sampling, draw, warp
from selector.engine.drafting import Root
from selector.engine.language_model import LanguageModel
from selector.trees.expansion import Expansion
from selector.trees.super_tree import SuperTree
from selector.trees.topology import Topology


@dataclass
class Walk:
    """A trunk or a branch of super-tree `sample`: `length` tokens below the trunk node at depth `start`."""

    sample: int
    start: int
    length: int
    nodes: list[int] = field(default_factory=list)

    def runs(self, depth: int) -> bool:
        """Whether this walk draws a token at `depth`."""
        return self.start < depth <= self.start + self.length


@dataclass
class Forest:
    """`s` super-trees in one trie.

    Attributes:
        limits: largest `(K, L1, L2)`.
        topology, tokens: all nodes, level by level; node 0 is the root token.
        laws: `[inner nodes, columns]`, float32: draft laws on the columns of the draft's head, in the nodes' order.
        law_rows: row of `laws` of each node; -1 for nodes below which nothing was drawn.
        trunks: one walk a super-tree; `branches[sample][i]` are the `Kmax - 1` extra ones at trunk position `i`.
        support, vocab_size: where the columns belong.
    """

    limits: Expansion
    topology: Topology
    tokens: list[int]
    laws: Tensor
    law_rows: list[int]
    trunks: list[Walk]
    branches: list[list[list[Walk]]]
    support: Tensor | None
    vocab_size: int

    def __len__(self) -> int:
        return len(self.tokens)

    def super_tree(self, sample: int) -> tuple[SuperTree, list[int]]:
        """Super-tree `sample` on its own, and the forest's node of each of its nodes."""
        trunk, branches = self.trunks[sample], self.branches[sample]
        walks = [trunk, *(walk for position in branches for walk in position)]
        nodes = sorted({0, *(node for walk in walks for node in walk.nodes)})
        number = {node: index for index, node in enumerate(nodes)}
        topology = Topology()
        for node in nodes[1:]:
            topology.add(number[self.topology.parents[node]])
        own_trunk = [0, *(number[node] for node in trunk.nodes)]
        length = self.limits.branch_length
        own_branches = [
            [own_trunk[i + 1 : i + 1 + length], *([number[node] for node in walk.nodes] for walk in position)]
            for i, position in enumerate(branches)
        ]
        tokens = torch.tensor([self.tokens[node] for node in nodes], device=self.laws.device)
        return SuperTree(topology, tokens, self._dense(nodes), own_trunk, own_branches, self.support), nodes

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


def draw_super_tree(
    draft: LanguageModel, root: Root, limits: Expansion, sampling: Sampling, generator: torch.Generator | None = None
) -> SuperTree:
    """One super-tree; see `draw_forest`."""
    return draw_forest(draft, root, limits, 1, sampling, generator).super_tree(0)[0]


def draw_forest(
    draft: LanguageModel,
    root: Root,
    limits: Expansion,
    num_samples: int,
    sampling: Sampling,
    generator: torch.Generator | None = None,
) -> Forest:
    """Draw `num_samples` independent super-trees with the draft's law warped by `sampling`, as `root.laws` are.

    The root token is the draft's last pending row. The drafted rows stay pending: the caller keeps what belongs
    to the context. The last level is drawn and not drafted from.
    """
    branches, trunk_length, length = limits
    trunks = [Walk(sample, 0, trunk_length + length) for sample in range(num_samples)]
    extra = [
        [[Walk(sample, start, length) for _ in range(branches - 1)] for start in range(trunk_length + 1)]
        for sample in range(num_samples)
    ]
    walks = trunks + [walk for sample in extra for position in sample for walk in position]
    builder = _Builder(draft, root, sampling)
    for depth in range(1, trunk_length + length + 1):
        running = [walk for walk in walks if walk.runs(depth)]
        builder.advance(running, [_end(walk, trunks, depth - 1) for walk in running], generator)
        if depth < trunk_length + length:
            builder.draft_level(sorted({_end(walk, trunks, depth) for walk in walks if walk.runs(depth + 1)}))
    laws = torch.cat(builder.laws)
    return Forest(
        limits, builder.topology, builder.tokens, laws, builder.law_rows, trunks, extra, draft.support, draft.vocab_size
    )


def _end(walk: Walk, trunks: Sequence[Walk], depth: int) -> int:
    """Node at `depth` from which the walk draws its next token."""
    if walk.nodes:
        return walk.nodes[-1]
    return trunks[walk.sample].nodes[depth - 1] if depth else 0


class _Builder:
    """The trie, and the draft's rows and laws of its nodes."""

    def __init__(self, draft: LanguageModel, root: Root, sampling: Sampling) -> None:
        self.draft, self.sampling = draft, sampling
        self.topology = Topology()
        self.tokens = [root.token]
        self.laws = [root.laws[-1:]]
        self.law_rows = [0]
        self.pending = {0: root.row}
        self.next_row = root.row + 1
        self.index: dict[tuple[int, int], int] = {}

    def advance(self, walks: list[Walk], ends: list[int], generator: torch.Generator | None) -> None:
        """Each walk draws one token from the law of its own end; equal tokens below one node are one node."""
        offset = sum(map(len, self.laws[:-1]))  # all ends of a level lie in the last block of laws
        rows = torch.tensor([self.law_rows[node] - offset for node in ends], device=self.laws[-1].device)
        columns = draw(self.laws[-1], generator, rows)
        drawn = columns if self.draft.support is None else self.draft.support[columns]
        for walk, end, token in zip(walks, ends, drawn.tolist(), strict=True):
            walk.nodes.append(self._child(end, token))

    def _child(self, parent: int, token: int) -> int:
        node = self.index.get((parent, token))
        if node is None:
            node = self.index[parent, token] = self.topology.add(parent)
            self.tokens.append(token)
            self.law_rows.append(-1)
        return node

    def draft_level(self, nodes: list[int]) -> None:
        """One draft pass over the distinct nodes of a level from which something is drawn next."""
        tokens = torch.tensor([self.tokens[node] for node in nodes], device=self.draft.device)
        scores = self.draft.extend(tokens, [self.pending[self.topology.parents[node]] for node in nodes])
        first_law = sum(map(len, self.laws))
        for place, node in enumerate(nodes):
            self.pending[node] = self.next_row + place
            self.law_rows[node] = first_law + place
        self.next_row += len(nodes)
        self.laws.append(warp(scores.logits, self.sampling))
