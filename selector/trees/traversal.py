"""Traversal Verification (Weng et al. 2025): bottom-up, each child's whole subtree before the next, every node once."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from selector.trees.draft_tree import DraftTree
from selector.trees.verifier import Decision, TreeVerifier, tree_distributions
from selector.verification.without_replacement import Visit, descend


class Traversal(TreeVerifier):
    """Traversal Verification of any tree. On a single path it is Block Verification."""

    name = "traversal"

    def decide(self, tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"]) -> Decision:
        tokens = tree.tokens.tolist()
        distributions, target, draft = tree_distributions(tree, target_probs)
        visits = self.make_visits(tree, target, draft)
        descend(distributions, visits[:1])
        accepted = [0.0] * len(visits)
        remaining = 1.0
        for visit in self.order(tree, visits):
            acceptance = visit.acceptance if visit.row > 0 else 1.0
            accepted[visit.row] = remaining * acceptance
            remaining *= 1.0 - acceptance

        def bonus(node: int) -> Float[Tensor, " vocab"]:
            visit = visits[node]
            if not visit.children:
                return target_probs[node]
            # A rejected token's residual is zero from its rejection on; removing it keeps rounding from reviving it.
            return distributions.residual(node, visit.factors[-1], [tokens[child.row] for child in visit.children])

        return Decision(accepted, bonus)

    def make_visits(self, tree: DraftTree, target: list[float], draft: list[float]) -> list[Visit]:
        """One visit a node, in the order of the nodes."""
        visits = [Visit(node, target[node], draft[node]) for node in range(len(tree.topology))]
        for node, visit in enumerate(visits):
            visit.children = [visits[child] for child in tree.topology.distinct_children(node)]
        visits[0].weight = 1.0
        return visits

    def order(self, tree: DraftTree, visits: list[Visit]) -> list[Visit]:
        """The order of verification."""
        return post_order(visits[0])


def post_order(visit: Visit) -> list[Visit]:
    """Each child's whole subtree before the next child, the node itself last."""
    return [node for child in visit.children for node in post_order(child)] + [visit]
