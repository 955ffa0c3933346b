"""Keys and values of one sequence in buffers that are written and rolled back in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from selector.errors import UserError

INITIAL_ROWS = 256
KINDS = ("full_attention", "sliding_attention")  # of layers, where a configuration names them


class RowBuffer:
    """`data [slots, heads, capacity, head_dim]`: the keys or the values of one layer in each slot."""

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self.slots = 0
        self.data = torch.empty(0)

    def reserve(self, rows: int, used: int) -> None:
        """Make room for `rows` rows (doubling), keeping the first `used`."""
        capacity = self.data.shape[2] if self.data.dim() == 4 else 0
        if rows <= capacity:
            return
        heads, width = self.shape
        grown = max(rows, 2 * capacity, INITIAL_ROWS)
        data = torch.zeros(self.slots, heads, grown, width, dtype=self.dtype, device=self.device)
        if used:
            data[:, :, :used] = self.data[:, :, :used]
        self.data = data

    def move(self, start: int, rows: list[int]) -> None:
        """Copy `rows` (ascending, absolute) to `start, start + 1, ..` in place, for all slots at once."""
        index = torch.tensor(rows, device=self.device)
        self.data[:, :, start : start + len(rows)] = self.data.index_select(2, index)


class BufferedLayer(CacheLayerMixin):
    """One layer's view of a key buffer and a value buffer; all layers have the same number of rows."""

    is_sliding = False

    def __init__(self, owner: PathCache, key_buffer: RowBuffer, value_buffer: RowBuffer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owner, self.key_buffer, self.value_buffer = owner, key_buffer, value_buffer
        self.key_slot, key_buffer.slots = key_buffer.slots, key_buffer.slots + 1
        self.value_slot, value_buffer.slots = value_buffer.slots, value_buffer.slots + 1
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the owner allocates."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new rows behind the old ones; returns views `[1, heads, rows, head_dim]` of all of them."""
        start = self.owner.rows
        end = start + key_states.shape[2]
        keys = self.key_buffer.data[self.key_slot : self.key_slot + 1, :, :end]
        values = self.value_buffer.data[self.value_slot : self.value_slot + 1, :, :end]
        keys[:, :, start:] = key_states
        values[:, :, start:] = value_states
        return keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys seen by a pass of `query_length` new rows, and their offset."""
        return self.owner.rows + query_length, 0

    def get_seq_length(self) -> int:
        """Rows before the pass in progress."""
        return self.owner.rows

    def get_max_length(self) -> int:
        """No maximum."""
        return -1


class PathCache(Cache):
    """A cache whose pending rows are cut down to one path of them without copying the context.

    Attributes:
        rows: rows written by finished passes, committed and pending.
    """

    def __init__(self, probe: DynamicCache) -> None:
        """`probe` is a cache that the model has filled with one pass: it shows each layer's shape and device."""
        self.rows = 0
        self.buffers: list[RowBuffer] = []
        filled: list[Any] = list(probe.layers)
        super().__init__(
            layers=[BufferedLayer(self, self._buffer(old.keys), self._buffer(old.values)) for old in filled]
        )

    def _buffer(self, states: Tensor) -> RowBuffer:
        shape = (states.shape[1], states.shape[3])
        for buffer in self.buffers:
            if (buffer.shape, buffer.dtype, buffer.device) == (shape, states.dtype, states.device):
                return buffer
        self.buffers.append(RowBuffer(shape, states.dtype, states.device))
        return self.buffers[-1]

    def reserve(self, new_rows: int) -> None:
        """Before a pass: make room for `new_rows` more rows."""
        for buffer in self.buffers:
            buffer.reserve(self.rows + new_rows, self.rows)

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Move the rows `start + path[i]` (ascending) to `start + i` and drop all other rows from `start` on."""
        in_place = next((i for i, row in enumerate(path) if row != i), len(path))
        moved = [start + row for row in path[in_place:]]
        if moved:
            for buffer in self.buffers:
                buffer.move(start + in_place, moved)
        self.rows = start + len(path)


def sliding_window(config: Any, name: str) -> int | None:
    """The window of a model's sliding layers; None where all of them see everything.

    Raises UserError for a cache that could not be rolled back to a path: recurrent, chunked, or of two windows.
    """
    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or []
    windows, refused = set(), [kind for kind in kinds if kind not in KINDS]
    for layer in DynamicCache(config=config).layers:
        if type(layer) is DynamicSlidingWindowLayer:
            windows.add(layer.sliding_window)
        elif type(layer) is not DynamicLayer:
            refused.append(type(layer).__name__.removesuffix("Layer"))
    if refused:
        message = f"model {name!r} has a {refused[0]} cache, which cannot be rolled back: "
        raise UserError(message + "take one with full or sliding attention.")
    if len(windows) > 1:
        raise UserError(f"model {name!r} has sliding windows of {sorted(windows)}: take one with a single window.")
    return windows.pop() if windows else None
