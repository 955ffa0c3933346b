"""Block Verification of one path through the tree: the first (BV), the best-ranked (GBV), or a random one (RBV)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from selector.trees.decision import Decision, TreeVerifier, tree_laws
from selector.trees.draft_tree import DraftTree
from selector.trees.routes import Route, Router
from selector.verification.laws import NodeLaws
from selector.verification.solver import ratio


class Block(TreeVerifier):
    """Accept the path's node `i` with `h_i = S_i / (S_i + (1 - w_i))`, its leaf with `w`, from the leaf upwards.

    `w_i = min(1, w_{i-1} p / r)`, `S_i = sum (w_i p - r)_+`, with `r` the law of the path's next token.
    """

    def __init__(self, name: str, router: type[Router]) -> None:
        self.name, self.router = name, router

    def decide(self, tree: DraftTree, target_probs: Tensor) -> Decision:
        laws, target, draft = tree_laws(tree, target_probs)
        tokens = tree.tokens.tolist()
        lists = {node: children for node, children in enumerate(tree.topology.children) if children}
        taken = take(laws, self.router(laws, tokens).route(lists), tokens, target, draft, {0: 1.0})
        accepted = [0.0] * len(tree.topology)
        missed: dict[int, float] = {}
        for node in reversed(taken.reach):
            children = taken.route.chosen.get(node)
            arrive = sum(missed[child] for child in children) if children else taken.reach[node]
            accepted[node] = arrive * (taken.acceptance[node] if node > 0 else 1.0)
            missed[node] = arrive - accepted[node]

        def bonus(node: int) -> Tensor:
            if node not in taken.route.chosen:
                return target_probs[node]
            return taken.laws.residual(node, 1 / taken.weights[node], [])

        return Decision(accepted, bonus)


@dataclass(frozen=True)
class Taken:
    """The nodes that a route can take, parents first.

    Attributes:
        laws: target laws against the route's own.
        reach: probability that the path goes through each node.
        weights, acceptance: `w` and `h` of each node.
        gains: of each inner node the mean entry weight of the next, `sum min(r, w p) = w (1 - Z(1/w))`.
    """

    route: Route
    laws: NodeLaws
    reach: dict[int, float]
    weights: dict[int, float]
    acceptance: dict[int, float]
    gains: dict[int, float]


def take(
    laws: NodeLaws,
    route: Route,
    tokens: list[int],
    target: list[float],
    draft: list[float],
    roots: dict[int, float],
) -> Taken:
    """Follow a route from `roots`, nodes with their weights; `target`, `draft` as in `tree_laws`."""
    own = laws.with_proposals(route.proposals)
    reach, weights = dict.fromkeys(roots, 1.0), dict(roots)
    for node, children in route.chosen.items():
        if node not in reach:
            continue
        proposals = [draft[child] for child in children]
        if node in route.proposals:
            columns = laws.columns_of([tokens[child] for child in children])
            proposals = route.proposals[node][columns].tolist()
        for (child, probability), proposal in zip(children.items(), proposals, strict=True):
            reach[child] = reach[node] * probability
            weights[child] = ratio(weights[node] * target[child], proposal)
    inner = [node for node in reach if node in route.chosen and weights[node] > 0]
    masses = own.positive_mass(inner, [1 / weights[node] for node in inner])
    acceptance, gains = dict(weights), dict.fromkeys(reach, 0.0)
    for node, mass in zip(inner, masses, strict=True):
        surplus = weights[node] * mass
        # A node of weight 1 has its turn and is accepted for sure, also where rounding leaves no surplus.
        acceptance[node] = surplus / (surplus + (1 - weights[node])) if weights[node] < 1 else 1.0
        gains[node] = weights[node] * (1 - mass)
    return Taken(route, own, reach, weights, acceptance, gains)
