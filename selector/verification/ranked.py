"""Ranked: the draft with the best `p / q`, passed on now and then to another draft of its block (our own solver)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from selector.verification.node_distributions import NodeDistributions
from selector.verification.proposal import Plan, ProposalSolver
from selector.verification.ranking import Ranking, rankings


class Ranked(ProposalSolver):
    """A near-optimal solver by one sort, prefix sums and running maxima."""

    name = "ranked"

    def make_plans(self, distributions: NodeDistributions, row: int, counts: Collection[int]) -> dict[int, Plan]:
        ranking = rankings(distributions, [row])[row]
        moments = make_moments(ranking, max(counts))
        plans = {}
        for count in counts:
            blocks, drop = make_blocks(ranking, moments, count)
            plans[count] = ranked_plan(ranking, moments, count, blocks, drop)
        return plans


class BestOfBlock(NamedTuple):
    """The best-ranked draft; with probability `drop` another of the drafts in its block, uniformly, if there is one.

    Attributes:
        position: rank of each column.
        block, drop: by rank.
    """

    position: Tensor
    block: Tensor
    drop: Tensor

    def look(self, columns: Tensor) -> Tensor:
        ranks = self.position[columns]
        return torch.stack([ranks.to(self.drop.dtype), self.block[ranks], self.drop[ranks]])

    def choose(self, columns: Sequence[int], seen: Mapping[int, Sequence[float]]) -> dict[int, float]:
        best = max(columns, key=lambda column: seen[column][0])
        others = list(columns)
        others.remove(best)
        rivals = [column for column in others if seen[column][1] == seen[best][1]]
        if not rivals:
            return {best: 1.0}
        dropped = seen[best][2]
        chosen = {column: dropped * times / len(rivals) for column, times in Counter(rivals).items()}
        chosen[best] = chosen.get(best, 0.0) + 1 - dropped
        return chosen


class Moments(NamedTuple):
    """By rank, whose interval of draft mass is `l .. h`, and by `j = 0, 1, ..`; all by sums of positive terms.

    Attributes:
        powers: `[columns + 1]`: `t^j` at the boundaries.
        plain: integral of `t^j` over `l .. h`.
        own: integral of `t^j (t - l)`.
    """

    powers: list[Tensor]
    plain: list[Tensor]
    own: list[Tensor]


def make_moments(ranking: Ranking, count: int) -> Moments:
    """Moments for up to `count` drafts, by integration by parts:

    `(j + 1) plain_j = q h^j + j l plain_(j-1)` and `(j + 2) own_j = q^2 h^j + j l own_(j-1)`.
    """
    draft, low = ranking.draft, ranking.mass[:-1]
    squared = draft * draft
    powers, plain, own = [torch.ones_like(ranking.mass)], [draft], [squared / 2]
    for j in range(1, count + 1):
        powers.append(powers[-1] * ranking.mass)
        if j < count:
            high = powers[j][1:]
            plain.append((draft * high).addcmul_(low, plain[-1], value=j).div_(j + 1))
            own.append((squared * high).addcmul_(low, own[-1], value=j).div_(j + 2))
    return Moments(powers, plain, own)


class Blocks(NamedTuple):
    """Runs of ranks within which drafts are passed on; everything by rank.

    Attributes:
        opens: whether a block begins here.
        number: of the block, float64.
        start: draft mass ranked below the block.
        width: what a drop of 1 gives to each unit of draft mass ranked below in the block,
            `k sum_{j<=k-2} a^(k-2-j) plain_j`.
    """

    opens: Tensor
    number: Tensor
    start: Tensor
    width: Tensor


def blocks_of(ranking: Ranking, moments: Moments, count: int, opens: Tensor) -> Blocks:
    """The blocks that begin where `opens` says; the first rank must."""
    start = torch.where(opens, ranking.mass[:-1], 0.0).cummax(0).values
    width = count * graded(moments.plain, start, count - 2)
    return Blocks(opens, opens.cumsum(0, dtype=start.dtype), start, width)


def graded(values: Sequence[Tensor], start: Tensor, degree: int) -> Tensor:
    """`sum_{j<=degree} a^(degree-j) values_j`."""
    total = values[0]
    for value in values[1 : degree + 1]:
        total = torch.addcmul(value, start, total)
    return total


def make_blocks(ranking: Ranking, moments: Moments, count: int) -> tuple[Blocks, Tensor]:
    """Blocks, and by rank the drop of each token."""
    excess = ranking.target_mass - moments.powers[count]
    # The running minimum from below up to the lowest point, and from above beyond it.
    floor = torch.maximum(excess.cummin(0).values, excess.flip(0).cummin(0).values.flip(0))
    bounds = excess <= floor
    blocks = blocks_of(ranking, moments, count, bounds[:-1])
    span = ranking.mass[1:] - blocks.start
    top = bounds[1:] | (span <= 0)  # the surplus is 0 at the top of each block
    surplus = running_maximum_from_the_top(torch.where(top, 0.0, (excess - floor)[1:] / span), blocks.number)
    # A block's worst token has no worse rival in it but itself: nothing to drop.
    step = torch.where(blocks.opens, 0.0, pad(surplus[:-1], (1, 0)) - surplus)
    return blocks, torch.where(blocks.width > 0, step / blocks.width, 0.0).clamp_(0, 1)


def running_maximum_from_the_top(values: Tensor, block: Tensor) -> Tensor:
    """Maximum over the same or better ranks of the same block. Values are in `[0, 1]` or little above."""
    # Blocks are told apart by an offset larger than any value; the highest block comes first when flipped.
    offset = block * (2 * values.max() + 2)
    return (values - offset).flip(0).cummax(0).values.flip(0) + offset


def ranked_plan(ranking: Ranking, moments: Moments, count: int, blocks: Blocks, drop: Tensor) -> Plan:
    """The plan of any blocks and drops, with the distribution, by rank,

    `r = (1 - drop) k plain_(k-1) + drop stay + q sum over better z in the block of drop(z) width(z)`,
    `stay = k a^(k-1) q + k sum_{j<=k-2} a^(k-2-j) own_j`: the best draft is passed on to its own duplicate, or has no
    rival.
    """
    given = (drop * blocks.width).cumsum(0)
    closes = pad(blocks.opens[1:], (0, 1), value=True)
    ends = torch.where(closes, given, torch.inf).flip(0).cummin(0).values.flip(0)
    kept = (1 - drop) * moments.plain[count - 1]
    stay = torch.addcmul(graded(moments.own, blocks.start, count - 2), ranking.draft, blocks.start ** (count - 1))
    probs = torch.addcmul(kept, drop, stay).mul_(count).addcmul_(ranking.draft, ends - given)
    return Plan(probs.index_select(0, ranking.position), BestOfBlock(ranking.position, blocks.number, drop))
