"""Block Verification (Sun et al. 2024) of one path through the tree.

The path is the first branch (BV), the best-ranked one (GBV, our own), or a random one (RBV, our own).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from selector.errors import UserError
from selector.trees.block_paths import MakeRouter, Proposal, Route
from selector.trees.nodes import Nodes, Subtree
from selector.trees.verifier import Decision, NodesVerifier
from selector.verification.node_distributions import LARGEST_FACTOR, NodeDistributions
from selector.verification.solver import ratio


class Block(NodesVerifier):
    """Accept the path's node `i` with `h_i = S_i / (S_i + (1 - w_i))`, its leaf with `w`, from the leaf upwards.

    `w_i = min(1, w_{i-1} p / r)`, `S_i = sum (w_i p - r)_+`, with `r` the distribution of the path's next token.
    """

    def __init__(self, name: str, router: MakeRouter) -> None:
        self.name, self.router = name, router

    def decide_among(self, nodes: Nodes, tree: Subtree) -> Decision:
        if any(node in tree.drafted for node in tree.copied):
            raise UserError(mixed_refusal(self.name))
        taken = self.take(nodes, tree)
        accepted: dict[int, float] = {}
        missed: dict[int, float] = {}
        for node in reversed(taken.reach):
            children = taken.route.chosen.get(node)
            arrive = sum(missed[child] for child in children) if children else taken.reach[node]
            accepted[node] = arrive * (taken.acceptance(node) if node != tree.root else 1.0)
            missed[node] = arrive - accepted[node]
        return Decision(accepted, partial(_bonus, nodes, tree, taken))

    def take(self, nodes: Nodes, tree: Subtree) -> Taken:
        """The nodes that the path can take, a copied trunk first."""
        route = self.router(nodes.distributions, nodes.tokens).routes([tree.drafted])[0]
        if not tree.copied:
            return take(nodes.distributions, [route], nodes.target, nodes.draft, {tree.root: 1.0})[0]
        trunk = copied_trunk(nodes, tree)
        end = next(reversed(trunk.weights))
        below = take(nodes.distributions, [route], nodes.target, nodes.draft, {end: trunk.weights[end]})[0]
        chosen = trunk.route.chosen | below.route.chosen
        return Taken(
            below.route._replace(chosen=chosen),
            trunk.reach | below.reach,
            trunk.weights | below.weights,
            trunk.masses | below.masses,
        )


def _bonus(nodes: Nodes, tree: Subtree, taken: Taken, node: int) -> Float[Tensor, " vocab"]:
    """Row that the bonus token follows after a node."""
    distributions = nodes.distributions
    if node in tree.copied or node not in taken.route.chosen:
        return distributions.target(nodes.row(node, tree.copied.get(node)))
    proposal = taken.route.proposals.get(node)
    return distributions.residual(
        node, 1 / taken.weights[node], [], proposal.probs(distributions) if proposal else None
    )


def mixed_refusal(verifier: str) -> str:
    """What to say of a path verifier and a tree with drafts beside a copied token."""
    return (
        f"verifier is '{verifier}', which follows one path, and the tree has drafts beside a copied token: "
        "draft below the copied trunk's end alone, or take traversal or a node-local verifier."
    )


@dataclass(frozen=True)
class Taken:
    """The nodes that a route can take, parents first.

    Attributes:
        reach: probability that the path goes through each node.
        weights: `w` of each node.
        masses: `Z(1 / w) = sum (p - r / w)_+` of each inner node whose weight is not 0.
    """

    route: Route
    reach: dict[int, float]
    weights: dict[int, float]
    masses: dict[int, float]

    def acceptance(self, node: int) -> float:
        """`h` of a node."""
        weight = self.weights[node]
        # A node of weight 1 has its turn and is accepted for sure, also where rounding leaves no surplus.
        if node not in self.masses or weight == 1:
            return weight
        surplus = weight * self.masses[node]
        return surplus / (surplus + (1 - weight))

    def gain(self, node: int) -> float:
        """Mean entry weight of an inner node's next, `sum min(r, w p) = w (1 - Z(1/w))`."""
        return self.weights[node] * (1 - self.masses[node]) if node in self.masses else 0.0


def copied_trunk(nodes: Nodes, tree: Subtree) -> Taken:
    """A copied trunk, whose tokens have point masses for drafts: `w <- w p(c)`, `Z(1 / w) = 1 - p(c)`."""
    weights, masses = {tree.root: 1.0}, {}
    for node, child in tree.copied.items():
        weights[child] = weights[node] * nodes.chance(child)
        masses[node] = 1 - nodes.chance(child)
    route = Route({node: {child: 1.0} for node, child in tree.copied.items()}, {}, {})
    return Taken(route, dict.fromkeys(weights, 1.0), weights, masses)


def take(
    distributions: NodeDistributions,
    routes: Sequence[Route],
    target: Sequence[float],
    draft: Sequence[float],
    starts: Mapping[int, float],
) -> list[Taken]:
    """Nodes of each route, followed from its first node with the weight that `starts` gives.

    `target`, `draft`: of each node's token, as in `Nodes`.
    """
    taken = [_follow(route, target, draft, starts) for route in routes]
    wanted = {
        (node, one.route.proposals.get(node), 1 / one.weights[node]): None
        for one in taken
        for node in one.reach
        if node in one.route.chosen and one.weights[node] > 0
    }
    masses = dict(zip(wanted, path_masses(distributions, list(wanted)), strict=True))
    for one in taken:
        for node in one.reach:
            if node in one.route.chosen and one.weights[node] > 0:
                one.masses[node] = masses[node, one.route.proposals.get(node), 1 / one.weights[node]]
    return taken


def _follow(route: Route, target: Sequence[float], draft: Sequence[float], starts: Mapping[int, float]) -> Taken:
    start = next(iter(route.chosen), next(iter(starts)))
    reach, weights = {start: 1.0}, {start: starts[start]}
    for node, children in route.chosen.items():
        if node not in reach:
            continue
        for child, probability in children.items():
            reach[child] = reach[node] * probability
            weights[child] = ratio(weights[node] * target[child], route.chances.get(child, draft[child]))
    return Taken(route, reach, weights, {})


def path_masses(distributions: NodeDistributions, wanted: Sequence[tuple[int, Proposal | None, float]]) -> list[float]:
    """`sum (p - c r)_+` for each row, distribution `r` (None: the draft's) and `c`."""
    own = [(row, factor) for row, proposal, factor in wanted if proposal is None]
    plain = iter(distributions.positive_mass([row for row, _ in own], [factor for _, factor in own]))
    groups: dict[Proposal, list[float]] = {}
    for _, proposal, factor in wanted:
        if proposal is not None:
            groups.setdefault(proposal, []).append(factor)
    sums = []
    for proposal, factors in groups.items():
        target, probs = proposal.with_target(distributions)
        sums += [torch.add(target, probs, alpha=-min(factor, LARGEST_FACTOR)).relu_().sum() for factor in factors]
    keys = [(proposal, factor) for proposal, factors in groups.items() for factor in factors]
    found = dict(zip(keys, torch.stack(sums).tolist() if sums else [], strict=True))
    return [
        next(plain) if proposal is None else min(1.0, distributions.outside(row) + found[proposal, factor])
        for row, proposal, factor in wanted
    ]
