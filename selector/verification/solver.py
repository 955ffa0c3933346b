"""Protocol of a node-local solver of the optimal transport problem with membership cost (OTLP; arXiv 2602.16994).

A solver turns `k` tokens, drafted independently from the draft's distribution, into one token whose distribution is the
target's. Tree verification moves to the child that this token names, or ends with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from selector.verification.node_distributions import Drafts, NodeDistributions

RowCount = tuple[int, int]
"""A row, and the number `k` of drafts below it."""


class Solution(NamedTuple):
    """Distribution of the solver's output given the drafts (branching probabilities in arXiv 2602.16994).

    Attributes:
        branching: probability of each distinct drafted token, in order of first appearance.
        factor: off the drafted tokens the output follows `(p - factor * q)_+`, up to its mass.
        proposal: distribution over the distributions' columns that takes the place of `q` there; None for `q` itself.
    """

    branching: dict[int, float]
    factor: float
    proposal: Tensor | None = None


class Solver(Protocol):
    """One OTLP solver. `row` always means a row of `distributions`."""

    name: str

    def solve(self, distributions: NodeDistributions, problems: Sequence[Drafts]) -> list[Solution]:
        """Exact output distributions of problems with one draft or more, which share vocabulary passes."""
        ...

    def acceptance(self, distributions: NodeDistributions, pairs: Sequence[RowCount]) -> Sequence[float | None]:
        """Acceptance rate (arXiv 2602.16994, definition 5.1): `P(output is a draft)` over random drafts.

        One for each `(row, k)`; None where it has no cheap exact form.
        """
        ...


def ratio(target: float, draft: float) -> float:
    """`min(1, target / draft)` with `0 / 0 = 0` and `x / 0 = inf`: the probability of accepting a draft."""
    if target >= draft:
        return 1.0 if target > 0 else 0.0
    return target / draft


def single(problem: Drafts) -> Solution:
    """One draft: every solver but NSS is plain speculative sampling, and needs no vocabulary pass.

    A rejected token has `p < q`, hence residual zero.
    """
    return Solution({problem.tokens[0]: ratio(problem.target[0], problem.draft[0])}, 1.0)


def rows_with_choice(problems: Sequence[Drafts]) -> dict[int, int]:
    """Largest number of drafts of each row that has two or more in some problem."""
    counts: dict[int, int] = {}
    for problem in problems:
        if len(problem.tokens) > 1:
            counts[problem.row] = max(counts.get(problem.row, 0), len(problem.tokens))
    return counts
