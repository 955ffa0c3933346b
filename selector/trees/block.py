"""Block Verification: a single path, accepted from its end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from selector.trees.decision import Decision, TreeVerifier, tree_laws
from selector.trees.draft_tree import DraftTree
from selector.trees.traversal import post_order
from selector.verification.laws import NodeLaws
from selector.verification.visits import Visit, descend


class Block(TreeVerifier):
    """Block Verification of a tree's first branch; the others are not looked at."""

    name = "bv"

    def decide(self, tree: DraftTree, target_probs: Tensor) -> Decision:
        laws, target, draft = tree_laws(tree, target_probs)
        path = [0]
        while tree.topology.children[path[-1]]:
            path.append(tree.topology.children[path[-1]][0])
        return decide_path(laws, path, target, draft, len(tree.topology))


def decide_path(
    laws: NodeLaws, path: Sequence[int], target: Sequence[float], draft: Sequence[float], num_nodes: int
) -> Decision:
    """Block Verification of one path from the root, whose draft law is that of `laws`.

    Accept node `i` with `h_i = S_i / (S_i + (1 - w_i))`, the leaf with its `w`, from the leaf upwards.
    `target`, `draft`: probability of each node's token at its parent.
    """
    visits = [Visit(node, target[node], draft[node]) for node in path]
    for visit, child in pairwise(visits):
        visit.children = [child]
    visits[0].weight = 1.0
    descend(laws, visits[:1])
    accepted, remaining = [0.0] * num_nodes, 1.0
    for visit in post_order(visits[0]):
        acceptance = visit.acceptance if visit.row > 0 else 1.0
        accepted[visit.row] = remaining * acceptance
        remaining *= 1.0 - acceptance
    factors = {visit.row: visit.factors[-1] for visit in visits if visit.children}

    def bonus(node: int) -> Tensor:
        return laws.residual(node, factors[node], []) if node in factors else laws.target_probs[node]

    return Decision(accepted, bonus)
