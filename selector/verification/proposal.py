"""Solvers that first choose one of the drafts, by a rule whose law `r` is known, and then are Naive with `r` for `q`.

Lossless for any rule: what counts is that `r` is computed from the very rule that chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from selector.verification.laws import Drafts, NodeLaws
from selector.verification.naive import Naive
from selector.verification.solver import Solution, ratio, single

Choice = Callable[[Sequence[int]], Mapping[int, float]]


@dataclass(frozen=True)
class Plan:
    """How one of `k` drafts is chosen at a node.

    Attributes:
        law: `[columns]`, float64: law of the chosen token over random drafts.
        choose: probability of each distinct draft to be chosen; takes and gives columns, not tokens.
    """

    law: Tensor
    choose: Choice


class ProposalSolver(ABC):
    """`B(t) = sum_x pi(x) [a(x) 1{t = x} + (1 - a(x)) res(t)]`, `a = min(1, p / r)`, `res = norm((p - r)_+)`."""

    name: str

    @abstractmethod
    def plan(self, target: Tensor, draft: Tensor, count: int) -> Plan:
        """A plan for `count >= 2` drafts from the laws `[columns]` (float64) of a node."""

    def solve(self, laws: NodeLaws, problems: Sequence[Drafts]) -> list[Solution]:
        plans: dict[tuple[int, int], Plan] = {}
        for problem in problems:
            pair = problem.row, len(problem.tokens)
            if pair[1] > 1 and pair not in plans:
                target, draft = laws.columns(problem.row)
                plans[pair] = self.plan(target.double(), draft.double(), pair[1])
        return [
            solve_with_plan(laws, problem, plans[problem.row, len(problem.tokens)])
            if len(problem.tokens) > 1
            else single(problem)
            for problem in problems
        ]

    def acceptance(self, laws: NodeLaws, pairs: Sequence[tuple[int, int]]) -> list[float | None]:
        """Closed only for one draft: `sum min(p, r)` leaves out that a residual may hit another draft."""
        singles = [pair for pair in pairs if pair[1] == 1]
        rates = dict(zip(singles, Naive().acceptance(laws, singles), strict=True))
        return [rates.get(pair) for pair in pairs]


def solve_with_plan(laws: NodeLaws, problem: Drafts, plan: Plan) -> Solution:
    """Law of the output given the drafts."""
    columns = laws.columns_of(problem.tokens)
    token_of = dict(zip(columns, problem.tokens, strict=True))
    chosen = {token_of[column]: probability for column, probability in plan.choose(columns).items()}
    proposals = dict(zip(problem.tokens, plan.law[list(columns)].tolist(), strict=True))
    residual = (laws.columns(problem.row)[0].double() - plan.law).clamp_(min=0)
    mass = laws.outside(problem.row) + float(residual.sum())

    rejected, branching = 0.0, {}
    for token, (target, _) in problem.distinct().items():
        accept = ratio(target, proposals[token])
        branching[token] = chosen.get(token, 0.0) * accept
        rejected += chosen.get(token, 0.0) * (1 - accept)
    for token, (target, _) in problem.distinct().items():
        if mass > 0:
            branching[token] += rejected * max(0.0, target - proposals[token]) / mass
    return Solution(branching, 1.0, plan.law.to(laws.target_probs.dtype))


def rank(target: Tensor, draft: Tensor) -> Tensor:
    """Columns from the worst `p / q` to the best, `0 / 0 = 0`, `x / 0 = inf`, ties by id."""
    ratios = torch.where(target > 0, target / draft, torch.zeros_like(target))
    return ratios.argsort(stable=True)
