"""SpecTr (K-SEQ): accept drafts in order against an inflated draft distribution, with one residual for all.

Sun et al. 2023; `rho` as in arXiv 2602.16994, appendix B.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from selector.verification.naive import Naive
from selector.verification.node_distributions import Drafts, NodeDistributions
from selector.verification.nss import counts_by_row
from selector.verification.ranking import ascending, prefix_sums
from selector.verification.solver import RowCount, Solution, ratio, single

BISECTIONS = 60
"""Down to float64's resolution of `rho`. Below the root the solver is not lossless, so the upper end is taken."""


class Inflation(NamedTuple):
    """Factor `rho` on the draft distribution, the root of `Z(rho) = D(rho)^k`, and `Z` and `D` there.

    `Z = sum (p - rho q)_+`, `D = sum (q - p / rho)_+`.
    """

    rho: float
    mass: float
    rejection: float


class SpecTr:
    """Accept draft `x` with `min(1, p / (rho q))`, in order; at the end draw from `norm((p - rho q)_+)`."""

    name = "spectr"

    def solve(self, distributions: NodeDistributions, problems: Sequence[Drafts]) -> list[Solution]:
        pairs = [(problem.row, len(problem.tokens)) for problem in problems]
        inflations = find_inflations(distributions, [pair for pair in pairs if pair[1] > 1])
        return [
            self._solve(problem, inflations[pair]) if pair[1] > 1 else single(problem)
            for problem, pair in zip(problems, pairs, strict=True)
        ]

    def _solve(self, problem: Drafts, inflation: Inflation) -> Solution:
        branching, left = dict.fromkeys(problem.tokens, 0.0), 1.0
        for token, target, draft in zip(problem.tokens, problem.target, problem.draft, strict=True):
            accept = ratio(target, inflation.rho * draft)
            branching[token] += left * accept
            left *= 1 - accept
        for token, (target, draft) in problem.distinct().items():
            if inflation.mass > 0:
                branching[token] += left * max(0.0, target - inflation.rho * draft) / inflation.mass
        return Solution(branching, inflation.rho)

    def acceptance(self, distributions: NodeDistributions, pairs: Sequence[RowCount]) -> list[float]:
        """`1 - D(rho)^k`: at the root no token with a residual can be rejected, so that residuals never hit a draft."""
        singles = [pair for pair in pairs if pair[1] == 1]
        rates = dict(zip(singles, Naive().acceptance(distributions, singles), strict=True))
        inflations = find_inflations(distributions, [pair for pair in pairs if pair[1] > 1])
        rates.update((pair, 1 - inflation.rejection ** pair[1]) for pair, inflation in inflations.items())
        return [rates[pair] for pair in pairs]


def find_inflations(distributions: NodeDistributions, pairs: Sequence[RowCount]) -> dict[RowCount, Inflation]:
    """Inflations of `(row, k)` pairs, `k >= 2`, in `[1, k]` (and of others that the distributions remember)."""
    return distributions.remember("spectr inflations", pairs, lambda missing: _find_inflations(distributions, missing))


def _find_inflations(distributions: NodeDistributions, pairs: Sequence[RowCount]) -> dict[RowCount, Inflation]:
    """Two transfers for all rows: the linear pieces that hold the roots, and the masses there."""
    rows = counts_by_row(pairs)
    columns = {row: (target.double(), draft.double()) for row in rows for target, draft in [distributions.columns(row)]}
    pieces: dict[RowCount, Tensor] = {}
    for row, counts in rows.items():
        found = linear_pieces(*columns[row], distributions.outside(row), sorted(counts))
        pieces.update(((row, count), piece) for count, piece in zip(sorted(counts), found, strict=True))
    rhos = {
        pair: upper_end(pair[1], *piece)
        for pair, piece in zip(pieces, torch.stack(list(pieces.values())).tolist(), strict=True)
    }
    masses = []
    for (row, _), rho in rhos.items():
        target, draft = columns[row]
        surplus = torch.add(target, draft, alpha=-rho)
        masses.append(torch.stack([surplus.clamp(min=0).sum(), surplus.clamp_(max=0).sum()]))
    return {
        (row, count): Inflation(rho, min(1.0, distributions.outside(row) + above), min(1.0, -below / rho))
        for ((row, count), rho), (above, below) in zip(rhos.items(), torch.stack(masses).tolist(), strict=True)
    }


def linear_pieces(target: Tensor, draft: Tensor, outside: float, counts: Sequence[int]) -> list[Tensor]:
    """For each `k` (ascending) the piece between neighbouring ratios `p / q` that holds the inflation.

    A piece is `low, high`, its ends; `p, q` masses of the tokens above it; those of the tokens below it. Only tokens
    with `q < p < k q` change sides, so that only these are sorted; the others are two sums each.
    """
    above, below = target >= counts[-1] * draft, target <= draft
    mixed = (above | below).logical_not_().nonzero()[:, 0]
    ratios = target.index_select(0, mixed) / draft.index_select(0, mixed)
    order = ascending(ratios)
    ratios, mixed = ratios.index_select(0, order), mixed.index_select(0, order)
    sides = []
    for probs, extra in ((target, outside), (draft, 0.0)):
        sorted_probs = probs.index_select(0, mixed)
        upper = prefix_sums(sorted_probs.flip(0)).flip(0) + (torch.dot(probs, above.double()) + extra)
        sides.append((upper, prefix_sums(sorted_probs) + torch.dot(probs, below.double())))
    (target_above, target_below), (draft_above, draft_below) = sides
    ends = torch.nn.functional.pad(ratios, (1, 1), value=1.0)
    mass = target_above[:-1] - ratios * draft_above[:-1]
    rejection = (draft_below[:-1] - target_below[:-1] / ratios).clamp_(min=0)
    pieces = []
    for count in counts:
        # `Z - D^k` falls from ratio to ratio; in exact arithmetic it is positive up to the root and never after.
        place = ((mass > rejection**count) & (ratios < count)).sum()[None]
        low, high = ends[place], ends[place + 1]
        high = torch.where((place == len(ratios)) | (high > count), float(count), high)
        pieces.append(torch.cat([low, high, *(side[place] for pair in zip(*sides, strict=True) for side in pair)]))
    return pieces


def upper_end(
    count: int,
    low: float,
    high: float,
    target_above: float,
    draft_above: float,
    target_below: float,
    draft_below: float,
) -> float:
    """Bisect `Z(rho) - D(rho)^k` on one piece down to neighbouring numbers."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        rejection = max(0.0, draft_below - target_below / middle)
        if target_above - middle * draft_above > rejection**count:
            low = middle
        else:
            high = middle
    return high
