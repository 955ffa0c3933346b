"""Solvers that first choose one of the drafts, by a rule of known distribution `r`, then are Naive with `r` for `q`.

Lossless for any rule: what counts is that `r` is computed from the very rule that chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from selector.verification.naive import Naive
from selector.verification.node_distributions import Drafts, NodeDistributions
from selector.verification.nss import counts_by_row
from selector.verification.solver import RowCount, Solution, ratio, single


class Rule(Protocol):
    """How one of the drafts is chosen; takes and gives columns, not tokens."""

    def look(self, columns: Tensor) -> Tensor:
        """`[numbers, drafts]`: what the choice depends on, at the drafted columns."""
        ...

    def choose(self, columns: Sequence[int], seen: Mapping[int, Sequence[float]]) -> Mapping[int, float]:
        """Probability of each distinct draft to be chosen, given what was seen at its column."""
        ...


@dataclass(frozen=True)
class Plan:
    """How one of `k` drafts is chosen at a node.

    Attributes:
        probs: `[columns]`, float64: distribution of the chosen token over random drafts.
        rule: of the choice.
    """

    probs: Tensor
    rule: Rule


class Choice(NamedTuple):
    """By distinct drafted token: its probability to be chosen given the drafts, and over random drafts."""

    chosen: dict[int, float]
    proposals: dict[int, float]


class ProposalSolver(ABC):
    """`B(t) = sum_x pi(x) [a(x) 1{t = x} + (1 - a(x)) res(t)]`, `a = min(1, p / r)`, `res = norm((p - r)_+)`."""

    name: str

    @abstractmethod
    def make_plans(self, distributions: NodeDistributions, row: int, counts: Collection[int]) -> dict[int, Plan]:
        """A plan for each number of drafts, 2 or more, at a row."""

    def plans(self, distributions: NodeDistributions, pairs: Sequence[RowCount]) -> dict[RowCount, Plan]:
        """Plans of `(row, k)` pairs (and of others that the distributions remember)."""

        def make(missing: Sequence[RowCount]) -> dict[RowCount, Plan]:
            found = {row: self.make_plans(distributions, row, counts) for row, counts in counts_by_row(missing).items()}
            return {(row, count): found[row][count] for row, count in missing}

        return distributions.remember(f"{self.name} plans", pairs, make)

    def solve(self, distributions: NodeDistributions, problems: Sequence[Drafts]) -> list[Solution]:
        open_problems = [problem for problem in problems if len(problem.tokens) > 1]
        plans = self.plans(distributions, list(map(row_count, open_problems)))
        solutions = iter(
            solve_with_plans(distributions, open_problems, [plans[row_count(problem)] for problem in open_problems])
        )
        return [next(solutions) if len(problem.tokens) > 1 else single(problem) for problem in problems]

    def acceptance(self, distributions: NodeDistributions, pairs: Sequence[RowCount]) -> list[float | None]:
        """Closed only for one draft: `sum min(p, r)` leaves out that a residual may hit another draft."""
        singles = [pair for pair in pairs if pair[1] == 1]
        rates = dict(zip(singles, Naive().acceptance(distributions, singles), strict=True))
        return [rates.get(pair) for pair in pairs]


def row_count(problem: Drafts) -> RowCount:
    """Row and number of drafts of a problem."""
    return problem.row, len(problem.tokens)


def choices(distributions: NodeDistributions, problems: Sequence[Drafts], plans: Sequence[Plan]) -> list[Choice]:
    """Choice of each plan among its drafts; one transfer for all that the rules look at."""
    found = iter(distributions.columns_of([token for problem in problems for token in problem.tokens]))
    columns = [[next(found) for _ in problem.tokens] for problem in problems]
    # A plan looks once, at all columns drafted in any of its problems.
    views: dict[int, tuple[Plan, dict[int, None]]] = {}
    for plan, own in zip(plans, columns, strict=True):
        views.setdefault(id(plan), (plan, {}))[1].update(dict.fromkeys(own))
    seen = dict(zip(views, _look(list(views.values()), distributions.target_probs.device), strict=True))
    return [
        _choice(problem, plan.rule, own, seen[id(plan)])
        for problem, plan, own in zip(problems, plans, columns, strict=True)
    ]


def _look(views: Sequence[tuple[Plan, Collection[int]]], device: torch.device) -> list[dict[int, list[float]]]:
    """By column: the proposal's probability, then what the rule looks at."""
    if not views:
        return []
    flat = torch.tensor([column for _, columns in views for column in columns], device=device)
    parts = torch.split(flat, [len(columns) for _, columns in views])
    looks = [
        torch.cat([plan.probs[own][None], plan.rule.look(own).double()]).T
        for (plan, _), own in zip(views, parts, strict=True)
    ]
    numbers = iter(torch.cat([look.flatten() for look in looks]).tolist())
    return [
        {column: [next(numbers) for _ in range(look.shape[1])] for column in columns}
        for (_, columns), look in zip(views, looks, strict=True)
    ]


def _choice(problem: Drafts, rule: Rule, columns: Sequence[int], seen: Mapping[int, list[float]]) -> Choice:
    token_of = dict(zip(columns, problem.tokens, strict=True))
    chosen = rule.choose(columns, {column: seen[column][1:] for column in token_of})
    return Choice(
        {token: chosen.get(column, 0.0) for column, token in token_of.items()},
        {token: seen[column][0] for column, token in token_of.items()},
    )


def solve_with_plans(
    distributions: NodeDistributions, problems: Sequence[Drafts], plans: Sequence[Plan]
) -> list[Solution]:
    """Distributions of the output given the drafts."""
    if not problems:
        return []
    residuals: dict[int, Tensor] = {}
    for problem, plan in zip(problems, plans, strict=True):
        if id(plan) not in residuals:
            residuals[id(plan)] = (distributions.columns(problem.row)[0] - plan.probs).clamp_(min=0).sum()
    masses = dict(zip(residuals, torch.stack(list(residuals.values())).tolist(), strict=True))
    return [
        _solve(problem, choice, distributions.outside(problem.row) + masses[id(plan)], plan.probs)
        for problem, plan, choice in zip(problems, plans, choices(distributions, problems, plans), strict=True)
    ]


def _solve(problem: Drafts, choice: Choice, mass: float, probs: Tensor) -> Solution:
    rejected, branching = 0.0, {}
    distinct = problem.distinct()
    for token, (target, _) in distinct.items():
        accept = ratio(target, choice.proposals[token])
        branching[token] = choice.chosen[token] * accept
        rejected += choice.chosen[token] * (1 - accept)
    for token, (target, _) in distinct.items():
        if mass > 0:
            branching[token] += rejected * max(0.0, target - choice.proposals[token]) / mass
    return Solution(branching, 1.0, probs)
