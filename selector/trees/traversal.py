"""Traversal Verification (Weng et al. 2025): bottom-up, each child's whole subtree before the next, every node once."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from selector.trees.nodes import Nodes, Subtree
from selector.trees.verifier import Decision, NodesVerifier
from selector.verification.without_replacement import Visit, descend


class Traversal(NodesVerifier):
    """Traversal Verification of any tree. On a single path it is Block Verification."""

    name = "traversal"

    def decide_among(self, nodes: Nodes, tree: Subtree) -> Decision:
        visits = self.make_visits(nodes, tree)
        descend(nodes.distributions, [visits[tree.root]])
        accepted, remaining = {}, 1.0
        for node in self.order(tree):
            acceptance = visits[node].acceptance if node != tree.root else 1.0
            accepted[node] = remaining * acceptance
            remaining *= 1.0 - acceptance

        def bonus(node: int) -> Float[Tensor, " vocab"]:
            visit = visits[node]
            if not visit.children:
                return nodes.distributions.target(visit.row)
            # A rejected token's residual is zero from its rejection on; removing it keeps rounding from reviving it.
            removed = [nodes.tokens[child] for child in tree.below(node)]
            return nodes.distributions.residual(visit.row, visit.factors[-1], removed)

        return Decision(accepted, bonus)

    def make_visits(self, nodes: Nodes, tree: Subtree) -> dict[int, Visit]:
        """One visit a node, parents first."""
        visits = {tree.root: Visit(tree.root, weight=1.0)}
        order = [tree.root]
        for node in order:
            visit, copied = visits[node], tree.copied.get(node)
            if copied is not None:
                visit.row = nodes.row(node, copied)
                visit.copied = visits[copied] = Visit(copied, nodes.chance(copied))
            for child in dict.fromkeys(tree.drafted.get(node, ())):
                target = nodes.target[child] if copied is None else nodes.left(child, copied)
                own = Visit(child, target, nodes.draft[child])
                visit.children.append(own)
                visits.setdefault(child, own)
            order += tree.below(node)
        return visits

    def order(self, tree: Subtree) -> list[int]:
        """The order of verification."""
        return post_order(tree)


def post_order(tree: Subtree) -> list[int]:
    """Each child's whole subtree before the next child, the node itself last."""
    order, stack = [], [tree.root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack += tree.below(node)
    return order[::-1]
