"""Keys and values of many rows that are sampled in lockstep, laid out as the products of attention read them.

Keys lie transposed and all columns are contiguous, so that a matrix library multiplies them in place. Room is made for
a block of columns at a time; that copy is also where rows that have ended leave the batch.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

BLOCK = 32  # columns


class BatchCache(Cache):
    """A cache of `[rows, heads, columns, head_dim]`; columns from `length` on are empty and must be masked."""

    def __init__(self, layers: int, columns: int, most: int) -> None:
        """`columns`: of the first pass; `most`: of all passes together."""
        self.length, self.columns, self.most = 0, blocks(columns), blocks(most)
        self._own = [_Layer(self) for _ in range(layers)]
        super().__init__(layers=list(self._own))

    def reserve(self, rows: Tensor | None = None) -> None:
        """Add a block of columns, and keep only `rows`."""
        self.columns += BLOCK
        for layer in self._own:
            layer.grow(rows)


class _Layer(CacheLayerMixin):
    """Keys `[rows, heads, head_dim, columns]` and values `[rows, heads, columns, head_dim]` of a layer.

    Both are views of room that is taken once: tensors that grow in small steps would leave memory in pieces.
    """

    is_sliding = False

    def __init__(self, owner: BatchCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owner = owner
        self.turned = self.stored = torch.empty(0)
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take room for all columns."""
        self.key_room, self.value_room = (
            states.new_zeros(states.numel() // states.shape[2] * self.owner.most)
            for states in (key_states, value_states)
        )
        self._lay_out(key_states.transpose(2, 3)[..., :0], value_states[:, :, :0])

    def _lay_out(self, turned: Tensor, values: Tensor) -> None:
        """Lay out the room for the present columns, the first of them filled."""
        rows, heads, width, filled = turned.shape
        shape = rows, heads, width, self.owner.columns
        self.turned = self.key_room[: math.prod(shape)].view(shape).zero_()
        self.turned[..., :filled] = turned
        shape = rows, heads, self.owner.columns, values.shape[3]
        self.stored = self.value_room[: math.prod(shape)].view(shape).zero_()
        self.stored[:, :, :filled] = values

    def grow(self, rows: Tensor | None) -> None:
        """See `BatchCache.reserve`."""
        kept = slice(None) if rows is None else rows
        end = self.owner.length
        self._lay_out(self.turned[kept][..., :end].clone(), self.stored[kept][:, :, :end].clone())

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new columns behind the old ones; returns all columns, the empty ones included."""
        start = self.owner.length
        if not start:
            self.lazy_initialization(key_states, value_states)
        end = start + key_states.shape[2]
        self.turned[..., start:end] = key_states.transpose(2, 3)
        self.stored[:, :, start:end] = value_states
        return self.turned.transpose(2, 3), self.stored

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns that a pass sees, and their offset."""
        return self.owner.columns, 0

    def get_seq_length(self) -> int:
        """Columns before the pass in progress."""
        return self.owner.length

    def get_max_length(self) -> int:
        """No maximum."""
        return -1


def blocks(columns: int) -> int:
    """`columns`, rounded up to whole blocks."""
    return -(-columns // BLOCK) * BLOCK
