"""Naive: speculative sampling of the first draft (Leviathan et al. 2023).

On a tree with several drafts (NaiveTree, arXiv 2602.16994) the residual may hit another one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from selector.verification.node_distributions import Drafts, NodeDistributions
from selector.verification.nss import counts_by_row, values
from selector.verification.solver import RowCount, Solution, ratio, rows_with_choice, single


class Naive:
    """Accept the first draft with `min(1, p / q)`, else draw from `norm((p - q)_+)`."""

    name = "naive"

    def solve(self, distributions: NodeDistributions, problems: Sequence[Drafts]) -> list[Solution]:
        rows = list(rows_with_choice(problems))
        masses = dict(zip(rows, distributions.positive_mass(rows, [1.0] * len(rows)), strict=True))
        return [
            self._solve(problem, masses[problem.row]) if len(problem.tokens) > 1 else single(problem)
            for problem in problems
        ]

    def _solve(self, problem: Drafts, mass: float) -> Solution:
        accept = ratio(problem.target[0], problem.draft[0])
        branching = {problem.tokens[0]: accept}
        scale = (1 - accept) / mass if mass > 0 else 0.0
        for token, target, draft in zip(problem.tokens, problem.target, problem.draft, strict=True):
            branching.setdefault(token, scale * max(0.0, target - draft))
        return Solution(branching, 1.0)

    def acceptance(self, distributions: NodeDistributions, pairs: Sequence[RowCount]) -> list[float]:
        """`1 - Z(1) + sum (p - q)_+ (1 - (1 - q)^(k-1))`."""
        counts = counts_by_row(pairs)
        masses = dict(zip(counts, distributions.positive_mass(list(counts), [1.0] * len(counts)), strict=True))
        rates = {}
        for row, wanted in counts.items():
            target, draft = distributions.columns(row)
            rates[row, 1] = target.new_tensor(1 - masses[row])
            residual, hit = (target - draft).relu_(), draft
            for count in range(2, max(wanted) + 1):
                rates[row, count] = 1 - masses[row] + torch.dot(residual, hit)
                hit = hit + draft * (1 - hit)
        return values(rates, pairs)
