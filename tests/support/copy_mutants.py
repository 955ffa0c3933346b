"""Plausible mistakes at a node that has a copied child and drafts: enumerations must notice each of them."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from selector.trees.nodes import Nodes, Subtree
from selector.trees.verifier import Decision, NodesVerifier


class Changed(NodesVerifier):
    """A verifier with one thing changed."""

    def __init__(self, verifier: NodesVerifier) -> None:
        self.verifier, self.name = verifier, verifier.name


class SkipsEqualDrafts(Changed):
    """A draft equal to the copied token is left out, and the residual is not updated for it."""

    def decide_among(self, nodes: Nodes, tree: Subtree) -> Decision:
        drafted = {
            node: [child for child in entries if child != tree.copied.get(node)]
            for node, entries in tree.drafted.items()
        }
        lists = {node: entries for node, entries in drafted.items() if entries}
        return self.verifier.decide_among(nodes, tree._replace(drafted=lists))


class CopyLast(Changed):
    """At the root the drafts first; then the copied token with `p(c)`, and no residual of its own. Chains of one."""

    def decide_among(self, nodes: Nodes, tree: Subtree) -> Decision:
        if not tree.copied:
            return self.verifier.decide_among(nodes, tree)
        copied = tree.copied[tree.root]
        decision = self.verifier.decide_among(nodes, tree._replace(copied={}))
        accepted = dict(decision.accepted)
        taken = accepted[tree.root] * nodes.target[copied]
        accepted[tree.root] -= taken
        accepted[copied] = accepted.get(copied, 0.0) + taken

        def bonus(node: int) -> Float[Tensor, " vocab"]:
            return nodes.distributions.target(node) if node == copied else decision.bonus(node)

        return Decision(accepted, bonus)
