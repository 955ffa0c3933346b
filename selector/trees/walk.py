"""Top-down walk (arXiv 2602.16994): a node-local solver names a child to move to, or the token that ends the walk."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from selector.trees.draft_tree import DraftTree
from selector.trees.verifier import Decision, TreeVerifier, tree_distributions
from selector.verification.node_distributions import Drafts
from selector.verification.solver import Solver


class Walk(TreeVerifier):
    """Verification by an OTLP solver at every node on the way.

    The walk is not simulated: all nodes are solved at once, and their scalars multiplied along the paths, so that
    one draw decides. `reach(u.t) = reach(u) B(ch(u), t)`, and the walk ends at `u` with what its children leave.
    """

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.name = solver.name

    def decide(self, tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"]) -> Decision:
        topology, tokens = tree.topology, tree.tokens.tolist()
        distributions, target, draft = tree_distributions(tree, target_probs)
        inner = [node for node, entries in enumerate(topology.children) if entries]
        problems = [node_drafts(node, topology.children[node], tokens, target, draft) for node in inner]
        solutions = dict(zip(inner, self.solver.solve(distributions, problems), strict=True))
        reach = [1.0] + [0.0] * (len(topology) - 1)
        accepted = list(reach)
        for node, entries in enumerate(topology.children):
            accepted[node] = reach[node]
            if entries:
                branching = solutions[node].branching
                accepted[node] *= max(0.0, 1.0 - sum(branching.values()))
                for child in dict.fromkeys(entries):
                    reach[child] = reach[node] * branching[tokens[child]]

        def bonus(node: int) -> Float[Tensor, " vocab"]:
            if node not in solutions:
                return target_probs[node]
            solution = solutions[node]
            return distributions.residual(node, solution.factor, list(solution.branching), solution.proposal)

        return Decision(accepted, bonus)


def node_drafts(
    row: int, entries: Sequence[int], tokens: Sequence[int], target: Sequence[float], draft: Sequence[float]
) -> Drafts:
    """The drafts of a node, from per-node lists of tokens and of their probabilities at the parent."""
    return Drafts(
        row,
        tuple(tokens[child] for child in entries),
        tuple(target[child] for child in entries),
        tuple(draft[child] for child in entries),
    )
