"""Top-down walk (arXiv 2602.16994): a node-local solver names a child to move to, or the token that ends the walk."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from selector.trees.nodes import Nodes, Subtree
from selector.trees.verifier import Decision, NodesVerifier
from selector.verification.solver import Solver


class Walk(NodesVerifier):
    """Verification by an OTLP solver at every node on the way.

    The walk is not simulated: all nodes are solved at once, and their scalars multiplied along the paths, so that
    one draw decides. `reach(u.t) = reach(u) B(ch(u), t)`, and the walk ends at `u` with what its children leave.
    """

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.name = solver.name

    def decide_among(self, nodes: Nodes, tree: Subtree) -> Decision:
        copied, distributions = tree.copied, nodes.distributions
        problems = [nodes.drafts(node, entries, copied.get(node)) for node, entries in tree.drafted.items()]
        solutions = dict(zip(tree.drafted, self.solver.solve(distributions, problems), strict=True))
        reach, accepted = {tree.root: 1.0}, {}
        order = [tree.root]
        for node in order:
            left = reach[node]
            if node in copied:
                chance = nodes.chance(copied[node])
                reach[copied[node]] = left * chance
                left *= 1 - chance
            if node in solutions:
                branching = solutions[node].branching
                for child in tree.drafted[node]:
                    if child not in reach:
                        reach[child] = left * branching[nodes.tokens[child]]
                left *= max(0.0, 1.0 - sum(branching.values()))
            order += tree.below(node)
            accepted[node] = left

        def bonus(node: int) -> Float[Tensor, " vocab"]:
            row = nodes.row(node, copied.get(node))
            if node not in solutions:
                return distributions.target(row)
            solution = solutions[node]
            return distributions.residual(row, solution.factor, list(solution.branching), solution.proposal)

        return Decision(accepted, bonus)
