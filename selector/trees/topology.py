"""Shape of a tree: integers only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Topology:
    """Nodes of a tree: node 0 is the root, a parent stands before its children.

    Attributes:
        parents: parent of each node; -1 for the root.
        depths: depth of each node; 0 for the root.
        children: `children[u]` lists the child nodes of `u` in branch order, **with multiplicity**: one entry
            for each branch that passes through. Trunk nodes have one entry, leaves none. A copied node is no entry
            of its parent, except where it was drafted, too.

    Without copied nodes the order is breadth-first: a level is drafted from as a whole, except below a node whose draft
    row is no distribution. Without such nodes either all leaves have the same depth, and inner nodes are the first
    `num_inner` nodes.
    """

    parents: list[int] = field(default_factory=lambda: [-1])
    depths: list[int] = field(default_factory=lambda: [0])
    children: list[list[int]] = field(default_factory=lambda: [[]])

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def num_inner(self) -> int:
        """Number of nodes with a drafted child."""
        return sum(1 for entries in self.children if entries)

    def add(self, parent: int) -> int:
        """Append a new drafted node below `parent` (one branch passes through it) and return it."""
        node = self.add_copied(parent)
        self.children[parent].append(node)
        return node

    def add_copied(self, parent: int) -> int:
        """Append a new node below `parent` that no branch passes through (yet) and return it."""
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.children.append([])
        return len(self.parents) - 1

    def path(self, node: int) -> list[int]:
        """Nodes from the root's child down to `node`; empty for the root."""
        nodes = []
        while node > 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def distinct_children(self, node: int) -> list[int]:
        """Drafted child nodes in order of first appearance."""
        return list(dict.fromkeys(self.children[node]))


def build_topology(trunk: Sequence[int], branches: Sequence[Sequence[int]]) -> tuple[Topology, list[int]]:
    """Merge a trunk and branches of equal length into a tree; tokens of the nodes (0 for the root)."""
    topology, tokens = Topology(), [0]
    ends = [0]
    for token in trunk:
        ends = _extend(topology, tokens, ends, [token])
    ends = ends * len(branches)
    for step in zip(*branches, strict=True):
        ends = _extend(topology, tokens, ends, step)
    return topology, tokens


def _extend(topology: Topology, tokens: list[int], ends: Sequence[int], step: Sequence[int]) -> list[int]:
    """One more token on each path; paths that are equal so far share a node."""
    reached: dict[tuple[int, int], int] = {}
    for end, token in zip(ends, step, strict=True):
        if (end, token) in reached:
            topology.children[end].append(reached[end, token])
        else:
            reached[end, token] = topology.add(end)
            tokens.append(token)
    return [reached[pair] for pair in zip(ends, step, strict=True)]


def add_chain(topology: Topology, tokens: list[int], chain: Sequence[int]) -> tuple[int, ...]:
    """Nodes of a chain copied from the root on, added to the tree where nobody drafted them."""
    nodes = [0]
    for token in chain:
        same = [child for child in topology.children[nodes[-1]] if tokens[child] == token]
        if not same:
            tokens.append(token)
        nodes.append(same[0] if same else topology.add_copied(nodes[-1]))
    return tuple(nodes[1:])


def prefix_of(topology: Topology, tokens: Sequence[int], node: int) -> tuple[int, ...]:
    """Tokens from the root (left out) to a node."""
    return tuple(tokens[step] for step in topology.path(node))
