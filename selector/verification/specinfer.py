"""SpecInfer: recursive rejection sampling over the drafts in random order (Miao et al. 2024).

Branching probabilities as in arXiv 2602.16994, algorithm 14, with the acceptance *after* `i` rejections at step `i`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from selector.verification.node_distributions import Drafts, NodeDistributions
from selector.verification.nss import counts_by_row, values
from selector.verification.solver import RowCount, Solution, ratio, rows_with_choice, single

NEGLIGIBLE_MASS = 1e-30


class Chain(NamedTuple):
    """After `i` rejections the target's distribution has become `(p - factors[i] q)_+ / masses[i]`."""

    factors: list[float]
    masses: list[float]

    def residual(self, rejections: int, target: float, draft: float) -> float:
        """That residual distribution at a token; 0 where no mass is left, a state that only rounding can reach."""
        mass = self.masses[rejections]
        return max(0.0, target - self.factors[rejections] * draft) / mass if mass > 0 else 0.0


class SpecInfer:
    """Try a uniformly random remaining draft with `min(1, p_i / q)`; `p_{i+1} = norm((p_i - q)_+)`.

    The chain of residuals depends on the node alone, not on its drafts.
    """

    name = "specinfer"

    def solve(self, distributions: NodeDistributions, problems: Sequence[Drafts]) -> list[Solution]:
        chains = self.chains(distributions, rows_with_choice(problems))
        return [
            self._solve(problem, chains[problem.row]) if len(problem.tokens) > 1 else single(problem)
            for problem in problems
        ]

    def chains(self, distributions: NodeDistributions, lengths: Mapping[int, int]) -> dict[int, Chain]:
        """Residual chains of rows up to `lengths[row]` rejections: `c_{i+1} = c_i + Z(c_i)`."""
        chains = {row: Chain([0.0], [1.0]) for row in lengths}
        for step in range(max(lengths.values(), default=0)):
            rows = [row for row, length in lengths.items() if length > step]
            for row in rows:
                chains[row].factors.append(chains[row].factors[-1] + chains[row].masses[-1])
            for row, mass in zip(
                rows, distributions.positive_mass(rows, [chains[row].factors[-1] for row in rows]), strict=True
            ):
                chains[row].masses.append(mass)
        return chains

    def _solve(self, problem: Drafts, chain: Chain) -> Solution:
        """Sum over the sets of remaining drafts (bit masks), from all of them down to none."""
        count = len(problem.tokens)
        accept = self._accept(problem, chain)
        branching = dict.fromkeys(problem.tokens, 0.0)
        reach = [0.0] * (1 << count)
        reach[-1] = 1.0
        for state in range((1 << count) - 1, 0, -1):
            if reach[state] == 0.0:
                continue
            left = state.bit_count()
            rejections, share = count - left, reach[state] / left
            for position, token in enumerate(problem.tokens):
                if state >> position & 1:
                    accepted = share * accept[rejections][position]
                    branching[token] += accepted
                    reach[state ^ (1 << position)] += share - accepted
        for token, (target, draft) in problem.distinct().items():
            branching[token] += reach[0] * chain.residual(count, target, draft)
        return Solution(branching, chain.factors[count])

    def _accept(self, problem: Drafts, chain: Chain) -> list[list[float]]:
        """Acceptance of each draft after each number of rejections."""
        drafts = list(zip(problem.target, problem.draft, strict=True))
        return [
            [ratio(chain.residual(rejections, target, draft), draft) for target, draft in drafts]
            for rejections in range(len(drafts))
        ]

    def acceptance(self, distributions: NodeDistributions, pairs: Sequence[RowCount]) -> list[float]:
        """`1 - Z(c_k) + sum (p - c_k q)_+ (1 - M)`, `M = prod_{i<k} (1 - (q - p_i)_+ / D_i)`.

        `D_i = sum (q - p_i)_+` equals `Z(c_{i+1}) / Z(c_i)`: the mass rejected is the mass left over.
        """
        counts = {row: max(wanted) for row, wanted in counts_by_row(pairs).items()}
        chains = self.chains(distributions, counts)
        rates = {}
        for row, largest in counts.items():
            rates.update(
                {(row, k): rate for k, rate in enumerate(_rates(distributions, row, chains[row], largest), start=1)}
            )
        return values(rates, pairs)


def _rates(distributions: NodeDistributions, row: int, chain: Chain, largest: int) -> list[Tensor]:
    """Acceptance rates of `k = 1 .. largest` drafts.

    A stage without mass is never left: everything is accepted. So is, for all that a rate can tell, one whose mass is
    so small that its reciprocal overflows float32.
    """
    target, draft = distributions.columns(row)
    rates = [target.new_tensor(1 - chain.masses[1])]
    if largest == 1:
        return rates
    residual, missed, rates = target, torch.ones_like(draft), []
    for factor, before, after in zip(chain.factors[1:], chain.masses[:-1], chain.masses[1:], strict=True):
        if after <= NEGLIGIBLE_MASS:
            return rates + [target.new_tensor(1.0)] * (largest - len(rates))
        rejected = torch.add(draft, residual, alpha=-1 / before).relu_()
        missed = missed * (1 - rejected * (before / after)).clamp_(min=0.0)
        residual = torch.add(target, draft, alpha=-factor).relu_()
        rates.append(1 - after + torch.dot(residual, 1 - missed))
    return rates[:largest]
