"""Khisti: a tournament over the drafts, with a small program at the top of the ranking, then Naive on the winner.

Khisti et al. 2024; branching probabilities as in arXiv 2602.16994, algorithm 15, but over all drafts. Size of the top,
ranking and order of rounds follow a public description of the code behind arXiv 2602.16961. The program's solution is
not unique; ours is the flattest (see `flattest_wins`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from selector.verification.node_distributions import NodeDistributions
from selector.verification.proposal import Plan, ProposalSolver
from selector.verification.ranking import ascending, prefix_sums

TOP = 5
"""Tokens whose duels are optimised; elsewhere the better rank always wins."""

TIE = 1e-14
"""Surpluses closer than this are equal."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Round:
    """One duel of the winner so far against the next draft.

    Attributes:
        position: `[columns]`: rank, 0 the best.
        wins: `[top, top]`, by rank: probability that the row token beats the column token.
        probs: `[columns]`: distribution of the winner.
    """

    position: Tensor
    wins: Array
    probs: Tensor

    def beats(self, rank: float, other: float) -> float:
        """Probability that one rank beats another."""
        if max(rank, other) < len(self.wins):
            return float(self.wins[int(rank), int(other)])
        return 1.0 if rank < other else 0.0


class Khisti(ProposalSolver):
    """Tournament solver; exactly optimal for two drafts where the top holds every token."""

    name = "khisti"

    def make_plans(self, distributions: NodeDistributions, row: int, counts: Collection[int]) -> dict[int, Plan]:
        """Fewer drafts play the first rounds of more."""
        target, draft = (probs.double() for probs in distributions.columns(row))
        # Sums that are 1 up to float32 would leave a surplus, small, but not beside the rarest tokens.
        target, draft = target / (target.sum() + distributions.outside(row)), draft / draft.sum()
        rounds: list[Round] = []
        for _ in range(max(counts) - 1):
            rounds.append(play(target, rounds[-1].probs if rounds else draft, draft))
        return {count: Plan(rounds[count - 2].probs, Tournament(rounds[: count - 1])) for count in counts}


class Tournament:
    """Each draft in turn against the winner so far."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self.rounds = rounds

    def look(self, columns: Tensor) -> Tensor:
        """Ranks in each round."""
        return torch.stack([duel.position[columns] for duel in self.rounds])

    def choose(self, columns: Sequence[int], seen: Mapping[int, Sequence[float]]) -> dict[int, float]:
        leading = {columns[0]: 1.0}
        for number, (duel, challenger) in enumerate(zip(self.rounds, columns[1:], strict=True)):
            following = {challenger: 0.0}
            for column, probability in leading.items():
                win = 1.0 if column == challenger else duel.beats(seen[column][number], seen[challenger][number])
                following[column] = following.get(column, 0.0) + probability * win
                following[challenger] += probability * (1 - win)
            leading = following
        return leading


def play(target: Tensor, winner: Tensor, draft: Tensor, top: int = TOP) -> Round:
    """The round between a draft and a winner of distribution `winner`: rank by `p - q1 q`, optimise the top."""
    order = ascending(winner * draft - target)
    position = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    first, second = winner.index_select(0, order), draft.index_select(0, order)
    below_first, below_second = (prefix_sums(probs.flip(0))[:-1].flip(0) for probs in (first, second))
    # Where the better rank always wins: `q1 q + q1 T_q + T_q1 q`, `T` = mass ranked below.
    probs = first * (second + below_second) + below_first * second
    size = min(top, len(order))
    leaders = torch.stack([first[:size], second[:size], target[order[:size]], below_first[:size], below_second[:size]])
    wins, won = play_top(*leaders.cpu().numpy())
    probs[:size] = torch.as_tensor(won, device=probs.device)
    return Round(position, wins, probs.index_select(0, position))


def play_top(first: Array, second: Array, goal: Array, below_first: Array, below_second: Array) -> tuple[Array, Array]:
    """Duels among the top, and the mass that each of its tokens wins."""
    own = first * second + first * below_second[-1] + below_first[-1] * second
    pairs = np.outer(first, second)
    pairs = pairs + pairs.T
    np.fill_diagonal(pairs, 0.0)
    wins = flattest_wins(own, pairs, goal)
    return wins, own + (wins * pairs).sum(1)


def flattest_wins(own: Array, pairs: Array, goal: Array) -> Array:
    """Duels that make the winner's distribution `r` as flat as can be relative to the target, hence `sum min(p, r)`
    largest.

    `own`: mass that a token wins anyway; `pairs`: mass of each duel. Any set of tokens wins at least its own mass and
    the duels inside it. The set with the largest surplus over the target a token gets just that, spread evenly, and
    loses all its duels with the others; the rest follows in the same way. Given `r` the duels are as even as can be.
    """
    wins = np.full(pairs.shape, 0.5)
    left, excess = np.arange(len(own)), own - goal
    while len(left):
        chosen, surplus = _fullest(excess[left], pairs[left[:, None], left])
        group, left = left[chosen], left[~chosen]
        wins[group[:, None], left] = 0.0
        wins[left[:, None], group] = 1.0
        if len(group) > 1:
            inside = group[:, None], group
            wins[inside] = even_wins(pairs[inside], surplus - excess[group])
        excess[left] += pairs[left[:, None], group].sum(1)
    return wins


def _fullest(excess: Array, pairs: Array) -> tuple[npt.NDArray[np.bool_], float]:
    """The largest set with the largest surplus a token, and that surplus."""
    members = subsets(len(excess))
    sizes = members.sum(1)
    means = (members @ excess + ((members @ pairs) * members).sum(1) / 2) / sizes
    best = float(means.max())
    return members[np.where(means > best - TIE, sizes, 0).argmax()] > 0, best


@cache
def subsets(size: int) -> Array:
    """`[2^size - 1, size]` of 0 and 1: every set that is not empty."""
    return (np.arange(1, 1 << size)[:, None] >> np.arange(size) & 1).astype(np.float64)


def even_wins(pairs: Array, wanted: Array, steps: int = 50) -> Array:
    """Duels closest to 1/2 (in squares, weighted by mass) that give each token the mass `wanted`.

    They are `clip(1/2 + a_i - a_j, 0, 1)` for some `a`, found by Newton's method on the convex dual. An inexact end
    costs nothing but a little acceptance: the distribution is computed from the duels that are used.
    """
    level = np.zeros(len(wanted))
    for _ in range(steps):
        raw = 0.5 + level[:, None] - level[None, :]
        error = wanted - (pairs * raw.clip(0.0, 1.0)).sum(1)
        if np.abs(error).max() < 1e-14:
            break
        slope = pairs * ((raw > 0) & (raw < 1))
        hessian = np.diag(slope.sum(1)) - slope
        step = np.linalg.lstsq(hessian, error, rcond=1e-12)[0]
        length = _length(level, step, pairs, wanted)
        if length == 0.0:
            break
        level = level + length * step
    return (0.5 + level[:, None] - level[None, :]).clip(0.0, 1.0)


def _length(level: Array, step: Array, pairs: Array, wanted: Array) -> float:
    """Halve a Newton step until the dual falls; 0 where rounding lets it fall no more."""

    def dual(at: Array) -> float:
        raw = 0.5 + at[:, None] - at[None, :]
        inside = raw.clip(0.0, 1.0)
        return float((pairs * (inside**2 / 2 + (raw - inside) * inside)).sum() / 2 - beyond_half @ at)

    beyond_half = wanted - pairs.sum(1) / 2  # a token wins half of its duels where all levels are alike
    start, length = dual(level), 1.0
    while length > 1e-3:
        if dual(level + length * step) < start:
            return length
        length /= 2
    return 0.0
