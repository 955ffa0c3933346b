"""Top-down walk (arXiv 2602.16994): a node-local solver names a child to move to, or the token that ends the walk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from jaxtyping import Float
from torch import Tensor

from selector.trees.nodes import Nodes, Subtree
from selector.trees.verifier import Decision, NodesVerifier
from selector.verification.solver import Solution, Solver

DraftList = tuple[int, tuple[int, ...], int | None]
"""A node, drafts below it, with multiplicity, and its copied child."""


class Walk(NodesVerifier):
    """Verification by an OTLP solver at every node on the way.

    The walk is not simulated: all nodes are solved at once, and their scalars multiplied along the paths, so that
    one draw decides. `reach(u.t) = reach(u) B(ch(u), t)`, and the walk ends at `u` with what its children leave.
    """

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.name = solver.name

    def decide_among(self, nodes: Nodes, tree: Subtree) -> Decision:
        problems = [nodes.drafts(node, entries, tree.copied.get(node)) for node, entries in tree.drafted.items()]
        solutions = dict(zip(tree.drafted, self.solver.solve(nodes.distributions, problems), strict=True))
        _, accepted = walk(nodes, tree, solutions)

        return Decision(accepted, partial(_bonus, nodes, tree, solutions))

    def expected_among(self, nodes: Nodes, tree: Subtree) -> float:
        """`E[tau + 1 | tree]` is the sum of `reach`; trees share the solutions of equal drafts."""
        items = [(node, tuple(entries), tree.copied.get(node)) for node, entries in tree.drafted.items()]
        known = nodes.distributions.remember(f"{self.name} solutions", items, partial(self._solve, nodes))
        reach, _ = walk(nodes, tree, {item[0]: known[item] for item in items})
        return sum(reach.values())

    def _solve(self, nodes: Nodes, missing: Sequence[DraftList]) -> Mapping[DraftList, Solution]:
        problems = [nodes.drafts(*item) for item in missing]
        return dict(zip(missing, self.solver.solve(nodes.distributions, problems), strict=True))


def _bonus(nodes: Nodes, tree: Subtree, solutions: Mapping[int, Solution], node: int) -> Float[Tensor, " vocab"]:
    """Row that the bonus token follows after a node."""
    row = nodes.row(node, tree.copied.get(node))
    if node not in solutions:
        return nodes.distributions.target(row)
    solution = solutions[node]
    return nodes.distributions.residual(row, solution.factor, list(solution.branching), solution.proposal)


def walk(nodes: Nodes, tree: Subtree, solutions: Mapping[int, Solution]) -> tuple[dict[int, float], dict[int, float]]:
    """Probability of each node to be on the way, and to be the walk's end."""
    reach, accepted, order = {tree.root: 1.0}, {}, [tree.root]
    for node in order:
        left = reach[node]
        copied = tree.copied.get(node)
        if copied is not None:
            chance = nodes.chance(copied)
            reach[copied] = left * chance
            order.append(copied)
            left *= 1.0 - chance
        if node in solutions:
            branching = solutions[node].branching
            for child in tree.drafted[node]:
                if child not in reach:
                    reach[child] = left * branching[nodes.tokens[child]]
                    order.append(child)
            left *= max(0.0, 1.0 - sum(branching.values()))
        accepted[node] = left
    return reach, accepted
