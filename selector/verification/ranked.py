"""Ranked: look at the draft with the best `p / q`, and now and then pass it on to another draft of its block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import comb

import torch
from torch import Tensor

from selector.verification.proposal import Plan, ProposalSolver, rank


class Ranked(ProposalSolver):
    """A near-optimal solver by one sort, prefix sums and running maxima."""

    name = "ranked"

    def plan(self, target: Tensor, draft: Tensor, count: int) -> Plan:
        order = rank(target, draft)
        block, drop = make_blocks(target[order], draft[order], count)
        return ranked_plan(draft, count, order, block, torch.empty_like(drop).scatter_(0, order, drop))


def ranked_plan(draft: Tensor, count: int, order: Tensor, block: Tensor, drop: Tensor) -> Plan:
    """The plan of any blocks and drops: `order` worst first, `block` by rank, `drop` by column."""
    position = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    law = torch.empty_like(draft)
    law[order] = proposal_law(draft[order], count, block, drop[order])
    return Plan(law, partial(choose, position=position, block=block, drop=drop))


def choose(columns: Sequence[int], position: Tensor, block: Tensor, drop: Tensor) -> dict[int, float]:
    """The best-ranked draft; with `drop` another of the drafts in its block, uniformly, if there is one."""
    ranks = dict(zip(columns, position[list(columns)].tolist(), strict=True))
    best = max(columns, key=ranks.__getitem__)
    others = list(columns)
    others.remove(best)
    rivals = [column for column in others if int(block[ranks[column]]) == int(block[ranks[best]])]
    if not rivals:
        return {best: 1.0}
    dropped = float(drop[best])
    chosen = {column: dropped * times / len(rivals) for column, times in Counter(rivals).items()}
    chosen[best] = chosen.get(best, 0.0) + 1 - dropped
    return chosen


def make_blocks(target: Tensor, draft: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Block of each rank, and drop of each token, from laws sorted by rank (worst first)."""
    zero = draft.new_zeros(1)
    mass = torch.cat([zero, draft.cumsum(0)])
    excess = torch.cat([zero, target.cumsum(0)]) - mass**count
    lowest = int(excess.argmin())
    floor = torch.cat([excess[: lowest + 1].cummin(0).values, excess[lowest + 1 :].flip(0).cummin(0).values.flip(0)])
    bounds = excess <= floor
    block = bounds.long().cumsum(0)[:-1] - 1  # boundary i opens the block of rank i

    starts = mass[bounds.nonzero()[:, 0]][block]
    width = mass[1:] - starts
    surplus = torch.where(width > 0, (excess - floor)[1:] / width, torch.zeros_like(width))
    surplus = torch.where(bounds[1:], torch.zeros_like(surplus), surplus)  # 0 at the top of each block
    surplus = running_maximum_from_the_top(surplus, block)
    # A block's worst token has no worse rival in it but itself: nothing to drop.
    first = torch.cat([block.new_ones(1, dtype=torch.bool), block[1:] != block[:-1]])
    step = torch.where(first, torch.zeros_like(surplus), torch.cat([zero, surplus[:-1]]) - surplus)
    given = passed_on(mass[:-1], mass[1:], starts, draft, count)
    drop = torch.where(given > 0, step / given, torch.zeros_like(step)).clamp(0, 1)
    return block, drop


def running_maximum_from_the_top(values: Tensor, block: Tensor) -> Tensor:
    """Maximum over the same or better ranks of the same block. Values are in `[0, 1]` or little above."""
    # Blocks are told apart by an offset larger than any value; the highest block comes first when flipped.
    offset = (block.max() - block).to(values.dtype) * (2 * float(values.max()) + 2)
    return (values + offset).flip(0).cummax(0).values.flip(0) - offset


def passed_on(low: Tensor, high: Tensor, start: Tensor, draft: Tensor, count: int) -> Tensor:
    """`width(z) = k q sum_{j<=k-2} a^(k-2-j) / (j+1) sum_{n<=j} h^n l^(j-n)`: what a drop of 1 gives to each unit
    of draft mass in the same block below `z`."""
    total = torch.zeros_like(draft)
    for j in range(count - 1):
        total += start ** (count - 2 - j) / (j + 1) * powers(low, high, j)
    return count * draft * total


def powers(low: Tensor, high: Tensor, degree: int) -> Tensor:
    """`sum_{n<=degree} high^n low^(degree-n)`."""
    total = torch.ones_like(low)
    term = torch.ones_like(low)
    for _ in range(degree):
        term = term * low
        total = total * high + term
    return total


def proposal_law(draft: Tensor, count: int, block: Tensor, drop: Tensor) -> Tensor:
    """Law of the chosen token, by rank:

    r = (1 - drop) q sum_j h^j l^(k-1-j) + drop stay + q sum over better z in the block of drop(z) width(z).
    """
    mass = torch.cat([draft.new_zeros(1), draft.cumsum(0)])
    low, high = mass[:-1], mass[1:]
    first = torch.cat([block.new_ones(1, dtype=torch.bool), block[1:] != block[:-1]])
    start = low[first.nonzero()[:, 0]][block - block[0]]
    given = drop * passed_on(low, high, start, draft, count)
    # Sums over the better ranks of the same block: a suffix sum, less that of the block's end.
    suffix = torch.cat([given.flip(0).cumsum(0).flip(0), given.new_zeros(1)])
    ends = torch.cat([first.nonzero()[1:, 0], block.new_tensor([len(draft)])])
    received = (suffix[1:] - suffix[ends][block - block[0]]).clamp(min=0)
    kept = (1 - drop) * draft * powers(low, high, count - 1)
    return kept + drop * stays(low, start, draft, count) + draft * received


def stays(low: Tensor, start: Tensor, draft: Tensor, count: int) -> Tensor:
    """`stay(x) = k a^(k-1) q + k sum_{j<=k-2} a^(k-2-j) sum_{n<=j} C(j,n) l^(j-n) q^(n+2) / (n+2)`: the best draft
    is passed on to its own duplicate, or has no rival."""
    total = start ** (count - 1) * draft
    for j in range(count - 1):
        inner = torch.zeros_like(draft)
        for n in range(j + 1):
            inner += comb(j, n) * low ** (j - n) * draft ** (n + 2) / (n + 2)
        total = total + start ** (count - 2 - j) * inner
    return count * total
