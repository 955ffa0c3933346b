"""RRSw: recursive rejection sampling without replacement, on the distinct drafts in draft order.

Jeon et al. 2024, Yang et al. 2024.
"""

from __future__ import annotations

from collections.abc import Sequence

from selector.verification.naive import Naive
from selector.verification.node_distributions import Drafts, NodeDistributions
from selector.verification.solver import RowCount, Solution, single
from selector.verification.without_replacement import Visit, descend


class RRSw:
    """Traversal Verification's chain of residuals at one node that is entered with weight 1."""

    name = "rrsw"

    def solve(self, distributions: NodeDistributions, problems: Sequence[Drafts]) -> list[Solution]:
        visits = {}
        for index, problem in enumerate(problems):
            if len(problem.tokens) > 1:
                children = [Visit(-1, target, draft) for target, draft in problem.distinct().values()]
                visits[index] = Visit(problem.row, children=children, weight=1.0)
        descend(distributions, list(visits.values()))
        return [
            self._solve(problem, visits[index]) if index in visits else single(problem)
            for index, problem in enumerate(problems)
        ]

    def _solve(self, problem: Drafts, visit: Visit) -> Solution:
        branching, left = {}, 1.0
        for token, child in zip(problem.distinct(), visit.children, strict=True):
            branching[token] = left * child.weight
            left *= 1 - child.weight
        return Solution(branching, visit.factors[-1])

    def acceptance(self, distributions: NodeDistributions, pairs: Sequence[RowCount]) -> list[float | None]:
        """Closed only for one draft."""
        singles = [pair for pair in pairs if pair[1] == 1]
        rates = dict(zip(singles, Naive().acceptance(distributions, singles), strict=True))
        return [rates.get(pair) for pair in pairs]
