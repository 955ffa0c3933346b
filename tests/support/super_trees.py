"""Super-trees on their own, and labels from one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from selector.trees.efficiency import label_drawing
from selector.trees.expansion import ActionSpace, Expansion
from selector.trees.nodes import Nodes
from selector.trees.super_tree_view import Drawing
from selector.trees.topology import Topology
from selector.verification.node_distributions import NodeDistributions


@dataclass
class SuperTree:
    """A trie in breadth-first order (equal prefixes merged), and where a super-tree's trunk and branches lie in it.

    Attributes:
        topology: leaves have different depths, and `children` has one entry for each distinct child:
            multiplicities belong to an action's tree.
        tokens: `[nodes]`, int64.
        draft_probs: `[nodes, columns]`; the row of a node without children may be anything.
        trunk, branches: as in `Drawing`.
        support: `[columns]`, ascending: the tokens of the columns; None when they are the vocabulary.
    """

    topology: Topology
    tokens: Tensor
    draft_probs: Tensor
    trunk: list[int]
    branches: list[list[list[int]]]
    support: Tensor | None = None

    def drawing(self, target_probs: Tensor, limits: Expansion) -> Drawing:
        """The drawing to label; `target_probs` is `[nodes, vocab]`."""
        laws = NodeDistributions(target_probs, self.draft_probs, self.support)
        return Drawing(Nodes(laws, self.topology.parents, self.tokens.tolist()), self.trunk, self.branches, limits)


def label(tree: SuperTree, target_probs: Tensor, space: ActionSpace, verifiers: Sequence[str]) -> dict[str, Tensor]:
    """Labels from one super-tree alone; `target_probs` is `[nodes, vocab]`."""
    return label_drawing(tree.drawing(target_probs, space.limits), space, verifiers)
