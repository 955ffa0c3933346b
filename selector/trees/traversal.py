"""Traversal Verification (Weng et al. 2025): bottom-up, each child's whole subtree before the next, every node once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from jaxtyping import Float
from torch import Tensor

from selector.trees.nodes import Nodes, Subtree
from selector.trees.verifier import Decision, NodesVerifier
from selector.verification.without_replacement import Visit, copied_round, descend

VisitKey = tuple[int, int | None, float, tuple[int, ...]]
"""A node, its copied child, its weight after the latter's round, and its distinct drafted children."""


class Traversal(NodesVerifier):
    """Traversal Verification of any tree. On a single path it is Block Verification."""

    name = "traversal"

    def decide_among(self, nodes: Nodes, tree: Subtree) -> Decision:
        order = self.order(tree)
        visits = self.make_visits(nodes, tree, order[::-1])
        descend(nodes.distributions, [visits[tree.root]])
        accepted, remaining = {}, 1.0
        for node in order[:-1]:
            acceptance = visits[node].acceptance
            accepted[node] = remaining * acceptance
            remaining *= 1.0 - acceptance
        accepted[tree.root] = remaining
        return Decision(accepted, partial(_bonus, nodes, tree, visits))

    def expected_among(self, nodes: Nodes, tree: Subtree) -> float:
        """`E[tau + 1 | tree]`; trees share what becomes of a node that has the same weight and distinct drafts."""
        order = self.order(tree)
        weights, acceptances = dict.fromkeys(order, 0.0), {}
        weights[tree.root] = 1.0
        for node in reversed(order):
            weight, copied = weights[node], tree.copied.get(node)
            if copied is not None:
                weights[copied], weight = copied_round(weight, nodes.chance(copied))
            if node in tree.drafted and weight > 0:
                children = tuple(dict.fromkeys(tree.drafted[node]))
                visit = _visit(nodes, (node, copied, weight, children))
                weights.update((c, own.weight) for c, own in zip(children, visit.children, strict=True) if c != copied)
                weight = visit.acceptance
            acceptances[node] = weight
        tokens, remaining, depths = 1.0, 1.0, nodes.depths
        for node in order[:-1]:
            tokens += (depths[node] - depths[tree.root]) * acceptances[node] * remaining
            remaining *= 1.0 - acceptances[node]
        return tokens

    def make_visits(self, nodes: Nodes, tree: Subtree, order: Sequence[int]) -> dict[int, Visit]:
        """One visit a node, from an order of the nodes with parents first."""
        visits = {tree.root: Visit(tree.root, weight=1.0)}
        for node in order:
            copied, entries = tree.copied.get(node), tree.drafted.get(node, ())
            if copied is not None:
                visits[node].copied = visits[copied] = Visit(copied, nodes.chance(copied))
            if entries:
                visits[node].row = nodes.row(node, copied)
            for child in dict.fromkeys(entries):
                target = nodes.target[child] if copied is None else nodes.left(child, copied)
                own = Visit(child, target, nodes.draft[child])
                visits[node].children.append(own)
                visits.setdefault(child, own)
        return visits

    def order(self, tree: Subtree) -> list[int]:
        """The order of verification."""
        return post_order(tree)


def _bonus(nodes: Nodes, tree: Subtree, visits: Mapping[int, Visit], node: int) -> Float[Tensor, " vocab"]:
    """Row that the bonus token follows after a node."""
    row = nodes.row(node, tree.copied.get(node))
    if node not in tree.drafted:
        return nodes.distributions.target(row)
    # A rejected token's residual is zero from its rejection on; removing it keeps rounding from reviving it.
    removed = [nodes.tokens[child] for child in tree.below(node)]
    return nodes.distributions.residual(row, visits[node].factors[-1], removed)


def _visit(nodes: Nodes, key: VisitKey) -> Visit:
    """The state of a node after all its drafts, without what is below these."""

    return nodes.distributions.remember("traversal visits", [key], partial(_make_visits, nodes))[key]


def _make_visits(nodes: Nodes, keys: Sequence[VisitKey]) -> dict[VisitKey, Visit]:
    visits = {}
    for key in keys:
        node, copied, weight, children = key
        drafts = nodes.drafts(node, children, copied)
        stubs = [Visit(-1, target, draft) for target, draft in zip(drafts.target, drafts.draft, strict=True)]
        visits[key] = Visit(drafts.row, children=stubs, weight=weight)
    descend(nodes.distributions, list(visits.values()))
    return visits


def post_order(tree: Subtree) -> list[int]:
    """Each child's whole subtree before the next child, the node itself last."""
    order, stack = [], [tree.root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack += tree.below(node)
    return order[::-1]
