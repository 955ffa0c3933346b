"""Rows since the last `keep`: their depths, their ancestors, and the attention masks that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Visible = np.ndarray[Any, np.dtype[np.bool_]]


def windowed(visible: Visible, depths: Sequence[int], length: int, window: int) -> Visible:
    """`[new, length + pending]`: what the new rows see, the committed context included, within a sliding window.

    `visible [new, pending]`; `depths [pending]`, the new rows last. A row at position `i` sees position `j` where
    `i - j < window`, as in transformers.
    """
    positions = np.concatenate([np.arange(length), length + np.asarray(depths)])
    near: Visible = positions[-len(visible) :, None] - positions < window
    near[:, length:] &= visible
    return near


class PendingRows:
    """Depths and ancestors of the rows since the last `keep`.

    As long as every row follows the row before it nothing is stored but their number.
    """

    def __init__(self) -> None:
        self.depths: list[int] = []
        self._visible: Visible | None = None

    def append(self, parents: Sequence[int]) -> tuple[list[int], Visible | None]:
        """Depths of the new rows, and `visible [new, pending]` (self included), None for a chain."""
        start, count = len(self.depths), len(parents)
        if self._visible is None and list(parents) == list(range(start - 1, start + count - 1)):
            depths = list(range(start, start + count))
            self.depths += depths
            return depths, None
        visible = self._grown(start, start + count)
        for row, parent in enumerate(parents, start):
            if parent >= 0:
                visible[row, : parent + 1] = visible[parent, : parent + 1]
            visible[row, row] = True
            self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
        return self.depths[start:], visible[start : start + count, : start + count]

    def _grown(self, rows: int, needed: int) -> Visible:
        if self._visible is None or len(self._visible) < needed:
            grown = np.zeros((2 * needed, 2 * needed), dtype=bool)
            grown[:rows, :rows] = np.tri(rows, dtype=bool) if self._visible is None else self._visible[:rows, :rows]
            self._visible = grown
        return self._visible
