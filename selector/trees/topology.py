"""The shape of a drafted tree: integers only."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Topology:
    """Nodes in breadth-first order: node 0 is the root, a parent stands before its children.

    Attributes:
        parents: parent of each node; -1 for the root.
        depths: depth of each node; 0 for the root.
        children: `children[u]` lists the child nodes of `u` in branch order, **with multiplicity**: one entry
            for each branch that passes through. Trunk nodes have one entry, leaves none.

    A level is drafted from as a whole, except below a node whose draft row is no distribution. Without such nodes all
    leaves have the same depth, and inner nodes are the first `num_inner` nodes.
    """

    parents: list[int] = field(default_factory=lambda: [-1])
    depths: list[int] = field(default_factory=lambda: [0])
    children: list[list[int]] = field(default_factory=lambda: [[]])

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def num_inner(self) -> int:
        """Number of nodes with a child."""
        return sum(1 for entries in self.children if entries)

    def add(self, parent: int) -> int:
        """Append a new node below `parent` (one branch passes through it) and return it."""
        node = len(self.parents)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.children.append([])
        self.children[parent].append(node)
        return node

    def path(self, node: int) -> list[int]:
        """Nodes from the root's child down to `node`; empty for the root."""
        nodes = []
        while node > 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def distinct_children(self, node: int) -> list[int]:
        """Child nodes in order of first appearance."""
        return list(dict.fromkeys(self.children[node]))
