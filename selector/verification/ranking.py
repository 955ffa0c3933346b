"""Columns ranked by `p / q`, with the masses that solvers read off the ranking."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from selector.verification.node_distributions import NodeDistributions

RADIX_SIZE = 1 << 15
"""From so many whole numbers on torch sorts by radix."""

LARGEST = (1 << 63) - 1


class Ranking(NamedTuple):
    """A row's columns from the worst `p / q` to the best.

    Attributes:
        order, position: column of each rank, rank of each column.
        target, draft: `[columns]`, float64: by rank.
        mass, target_mass: `[columns + 1]`, float64: draft and target mass of the ranks below each boundary.
    """

    order: Tensor
    position: Tensor
    target: Tensor
    draft: Tensor
    mass: Tensor
    target_mass: Tensor


def rankings(distributions: NodeDistributions, rows: Iterable[int]) -> dict[int, Ranking]:
    """Rankings of some rows (and others that the distributions remember)."""
    return distributions.remember(
        "rankings", rows, lambda missing: {row: _rank_row(distributions, row) for row in missing}
    )


def _rank_row(distributions: NodeDistributions, row: int) -> Ranking:
    target, draft = (probs.double() for probs in distributions.columns(row))
    return make_ranking(target, draft, rank(target, draft))


def make_ranking(target: Tensor, draft: Tensor, order: Tensor) -> Ranking:
    """The ranking of any order, worst first."""
    position = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    target, draft = target.index_select(0, order), draft.index_select(0, order)
    return Ranking(order, position, target, draft, prefix_sums(draft), prefix_sums(target))


def rank(target: Tensor, draft: Tensor) -> Tensor:
    """Columns from the worst `p / q` to the best, `0 / 0 = 0`, `x / 0 = inf`, ties by id."""
    ratios = torch.where(target > 0, target / draft, 0.0)
    return ascending(ratios)


def ascending(values: Tensor) -> Tensor:
    """`values.argsort(stable=True)` of float64 numbers `[n]`, through the whole numbers that have the same order.

    A CPU sorts those by radix, several times as fast, if they are many.
    """
    bits = values.view(torch.int64)
    keys = bits ^ ((bits >> 63) & LARGEST)  # negative numbers: more bits are less
    if RADIX_SIZE // 2 < len(keys) < RADIX_SIZE:
        keys = torch.cat([keys, keys.new_full((RADIX_SIZE - len(keys),), LARGEST)])
    return keys.sort(stable=True).indices[: len(values)]


def prefix_sums(values: Tensor) -> Tensor:
    """`[n + 1]`: sum of the first `0 .. n` values."""
    return torch.nn.functional.pad(values.cumsum(0), (1, 0))
