"""SpecTr (K-SEQ): accept drafts in order against an inflated draft law, with one residual for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from selector.verification.laws import Drafts, NodeLaws
from selector.verification.naive import Naive
from selector.verification.solver import Solution, ratio, single

BISECTIONS = 55
"""Down to float64's resolution of `rho`. Below the root the solver is not lossless, so the upper end is taken."""


class Root(NamedTuple):
    """`rho`, the root of `Z(rho) = D(rho)^k`, with `Z = sum (p - rho q)_+` and `D = sum (q - p / rho)_+` there."""

    rho: float
    mass: float
    rejection: float


class SpecTr:
    """Accept draft `x` with `min(1, p / (rho q))`, in order; at the end draw from `norm((p - rho q)_+)`."""

    name = "spectr"

    def solve(self, laws: NodeLaws, problems: Sequence[Drafts]) -> list[Solution]:
        roots: dict[tuple[int, int], Root] = {}
        for problem in problems:
            pair = problem.row, len(problem.tokens)
            if pair[1] > 1 and pair not in roots:
                roots[pair] = find_root(laws, *pair)
        return [
            self._solve(problem, roots[problem.row, len(problem.tokens)])
            if len(problem.tokens) > 1
            else single(problem)
            for problem in problems
        ]

    def _solve(self, problem: Drafts, root: Root) -> Solution:
        branching, left = dict.fromkeys(problem.tokens, 0.0), 1.0
        for token, target, draft in zip(problem.tokens, problem.target, problem.draft, strict=True):
            accept = ratio(target, root.rho * draft)
            branching[token] += left * accept
            left *= 1 - accept
        for token, (target, draft) in problem.distinct().items():
            if root.mass > 0:
                branching[token] += left * max(0.0, target - root.rho * draft) / root.mass
        return Solution(branching, root.rho)

    def acceptance(self, laws: NodeLaws, pairs: Sequence[tuple[int, int]]) -> list[float]:
        """`1 - D(rho)^k`: at the root no token with a residual can be rejected, so that residuals never hit a draft."""
        singles = [pair for pair in pairs if pair[1] == 1]
        rates = dict(zip(singles, Naive().acceptance(laws, singles), strict=True))
        rates.update((pair, 1 - find_root(laws, *pair).rejection ** pair[1]) for pair in pairs if pair[1] > 1)
        return [rates[pair] for pair in pairs]


def find_root(laws: NodeLaws, row: int, count: int) -> Root:
    """Bisect `Z(rho) - D(rho)^k` on `[1, k]`; both are sums of positive terms, in float64.

    Only tokens with `q < p < k q` change sides on the way; the others are two sums each.
    """
    target, draft = (law.double() for law in laws.columns(row))
    above, below = target >= count * draft, target <= draft
    mixed = ~(above | below)
    target_mixed, draft_mixed = target[mixed], draft[mixed]
    above_target, above_draft = float(target[above].sum()), float(draft[above].sum())
    below_target, below_draft = float(target[below].sum()), float(draft[below].sum())
    outside = laws.outside(row)

    def masses(rho: float) -> tuple[float, float]:
        difference = target_mixed - rho * draft_mixed
        mass = outside + max(0.0, above_target - rho * above_draft) + float(difference.clamp(min=0).sum())
        rejection = max(0.0, below_draft - below_target / rho) + float((-difference).clamp(min=0).sum()) / rho
        return mass, rejection

    low, high = 1.0, float(count)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        mass, rejection = masses(middle)
        if mass > rejection**count:
            low = middle
        else:
            high = middle
    return Root(high, *(min(1.0, mass) for mass in masses(high)))
