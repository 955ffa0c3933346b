"""Nodes of drafted and copied tokens with their probabilities, and trees among them, as verification sees them.

A node's copied child is tried first, in a round of its own: with the point mass of its token `c` for a draft, it is
accepted with probability `p(c)`, and what is left is `p' = norm(p - p(c) e_c)`:

    distribution of the output = p(c) e_c + (1 - p(c)) (that of any algorithm on p', q and all the drafts)

A draft equal to `c` stays in the list, where `p'(c) = 0`; its branch goes on below the copied child.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from selector.trees.draft_tree import DraftTree
from selector.verification.node_distributions import Drafts, NodeDistributions

ChildLists = Mapping[int, Sequence[int]]
"""Child nodes, in branch order and with multiplicity, of each node that has some; parents come first."""


class Subtree(NamedTuple):
    """A tree among some nodes.

    Attributes:
        drafted: child nodes that were drafted.
        copied: child node that was copied, of nodes that have one.
        root: its first node.
    """

    drafted: ChildLists
    copied: Mapping[int, int]
    root: int = 0

    def below(self, node: int) -> list[int]:
        """Distinct child nodes in the order of verification: the copied one, then drafts in order of appearance."""
        drafted = self.drafted.get(node, ())
        if node in self.copied:
            drafted = [self.copied[node], *drafted]
        return list(dict.fromkeys(drafted)) if len(drafted) > 1 else list(drafted)


class Nodes:
    """A trie of drafted and copied tokens, which several trees may lie in, and its distributions.

    Args:
        undrafted: nodes that were copied and not drafted: their draft probability is nobody's concern.

    Attributes:
        distributions: target and draft rows, one a node; leaves need none, nor a draft row where nothing was drafted.
        parents: parent of each node, which stands before it; -1 for a root.
        tokens: of each node.
        target, draft: probability of each node's token at its parent (a root, and a draft that was none: 1).
    """

    def __init__(
        self,
        distributions: NodeDistributions,
        parents: Sequence[int],
        tokens: Sequence[int],
        undrafted: Collection[int] = (),
    ) -> None:
        self.distributions, self.parents, self.tokens = distributions, parents, tokens
        below = [node for node, parent in enumerate(parents) if parent >= 0]
        if undrafted:
            below.sort(key=undrafted.__contains__)
        found = distributions.at(
            [parents[node] for node in below], [tokens[node] for node in below], len(below) - len(undrafted)
        )
        self.target, self.draft = [1.0] * len(parents), [1.0] * len(parents)
        for probs, values in zip((self.target, self.draft), found, strict=True):
            for node, value in zip(below, values, strict=False):  # the undrafted come last
                probs[node] = value

    @cached_property
    def depths(self) -> list[int]:
        """Depth of each node below its root."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths

    def drafts(self, node: int, entries: Sequence[int], copied: int | None = None) -> Drafts:
        """The drafts of a node as a solver takes them, after the round of its copied child, if there is one."""
        target = self.target if copied is None else {child: self.left(child, copied) for child in entries}
        return Drafts(
            self.row(node, copied),
            tuple([self.tokens[child] for child in entries]),
            tuple([target[child] for child in entries]),
            tuple([self.draft[child] for child in entries]),
        )

    def chance(self, copied: int) -> float:
        """`p(c)` of a copied node, the probability that it is accepted in its round."""
        return min(1.0, self.target[copied])

    def left(self, child: int, copied: int) -> float:
        """`p'` of a drafted child's token after the round of the copied child."""
        left = 1 - self.chance(copied)
        return 0.0 if child == copied or left == 0 else self.target[child] / left

    def row(self, node: int, copied: int | None) -> int:
        """Row that a node's drafts, or else its bonus token, see: after the round of its copied child."""
        if copied is None:
            return node
        return self.distributions.after_rejection(node, self.tokens[copied], self.chance(copied))


def tree_nodes(tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"]) -> tuple[Nodes, Subtree]:
    """The nodes of a tree, and the tree among them."""
    children = tree.topology.children
    drafted = {node: entries for node, entries in enumerate(children) if entries}
    undrafted = set(range(1, len(children))).difference(*drafted.values())
    distributions = NodeDistributions(target_probs, tree.draft_probs, tree.support)
    nodes = Nodes(distributions, tree.topology.parents, tree.tokens.tolist(), undrafted)
    return nodes, Subtree(drafted, tree.copied_children)
