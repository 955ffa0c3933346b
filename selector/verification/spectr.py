"""SpecTr (K-SEQ): accept drafts in order against an inflated draft law, with one residual for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from selector.verification.naive import Naive
from selector.verification.node_distributions import Drafts, NodeLaws
from selector.verification.nss import counts_by_row
from selector.verification.ranking import ascending, prefix_sums
from selector.verification.solver import Solution, ratio, single

BISECTIONS = 60
"""Down to float64's resolution of `rho`. Below the root the solver is not lossless, so the upper end is taken."""

Pair = tuple[int, int]


class Root(NamedTuple):
    """`rho`, the root of `Z(rho) = D(rho)^k`, with `Z = sum (p - rho q)_+` and `D = sum (q - p / rho)_+` there."""

    rho: float
    mass: float
    rejection: float


class SpecTr:
    """Accept draft `x` with `min(1, p / (rho q))`, in order; at the end draw from `norm((p - rho q)_+)`."""

    name = "spectr"

    def solve(self, laws: NodeLaws, problems: Sequence[Drafts]) -> list[Solution]:
        pairs = [(problem.row, len(problem.tokens)) for problem in problems]
        roots = find_roots(laws, [pair for pair in pairs if pair[1] > 1])
        return [
            self._solve(problem, roots[pair]) if pair[1] > 1 else single(problem)
            for problem, pair in zip(problems, pairs, strict=True)
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

    def acceptance(self, laws: NodeLaws, pairs: Sequence[Pair]) -> list[float]:
        """`1 - D(rho)^k`: at the root no token with a residual can be rejected, so that residuals never hit a draft."""
        singles = [pair for pair in pairs if pair[1] == 1]
        rates = dict(zip(singles, Naive().acceptance(laws, singles), strict=True))
        roots = find_roots(laws, [pair for pair in pairs if pair[1] > 1])
        rates.update((pair, 1 - root.rejection ** pair[1]) for pair, root in roots.items())
        return [rates[pair] for pair in pairs]


def find_roots(laws: NodeLaws, pairs: Sequence[Pair]) -> dict[Pair, Root]:
    """Roots of `(row, k)` pairs, `k >= 2`, in `[1, k]` (and of others that the laws remember)."""
    return laws.remember("spectr roots", pairs, lambda missing: _find_roots(laws, missing))


def _find_roots(laws: NodeLaws, pairs: Sequence[Pair]) -> dict[Pair, Root]:
    """Two transfers for all rows: the linear pieces that hold the roots, and the masses there."""
    rows = counts_by_row(pairs)
    columns = {row: (target.double(), draft.double()) for row in rows for target, draft in [laws.columns(row)]}
    pieces: dict[Pair, Tensor] = {}
    for row, counts in rows.items():
        found = linear_pieces(*columns[row], laws.outside(row), sorted(counts))
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
        (row, count): Root(rho, min(1.0, laws.outside(row) + above), min(1.0, -below / rho))
        for ((row, count), rho), (above, below) in zip(rhos.items(), torch.stack(masses).tolist(), strict=True)
    }


def linear_pieces(target: Tensor, draft: Tensor, outside: float, counts: Sequence[int]) -> list[Tensor]:
    """For each `k` (ascending) the piece between neighbouring ratios `p / q` that holds the root.

    A piece is `low, high`, its ends; `p, q` masses of the tokens above it; those of the tokens below it. Only tokens
    with `q < p < k q` change sides, so that only these are sorted; the others are two sums each.
    """
    above, below = target >= counts[-1] * draft, target <= draft
    mixed = (above | below).logical_not_().nonzero()[:, 0]
    ratios = target.index_select(0, mixed) / draft.index_select(0, mixed)
    order = ascending(ratios)
    ratios, mixed = ratios.index_select(0, order), mixed.index_select(0, order)
    sides = []
    for law, extra in ((target, outside), (draft, 0.0)):
        sorted_law = law.index_select(0, mixed)
        upper = prefix_sums(sorted_law.flip(0)).flip(0) + (torch.dot(law, above.double()) + extra)
        sides.append((upper, prefix_sums(sorted_law) + torch.dot(law, below.double())))
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
