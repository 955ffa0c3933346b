"""A language model whose laws are a table: small enough to enumerate everything that decoding can do."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from selector.engine.language_model import Scores


class TableModel:
    """Logits are random numbers, fixed by the seed, the last `order` tokens, and the position; float64.

    Every row looks its own tokens up through its parents, as attention does, so a wrong parent, a wrong
    position and a row that should have been dropped all change the laws.
    """

    def __init__(
        self, vocab_size: int, seed: int, *, order: int = 2, scale: float = 1.5, support: Sequence[int] | None = None
    ) -> None:
        self.vocab_size, self.hidden_size = vocab_size, 3
        self.seed, self.order, self.scale = seed, order, scale
        self.support = None if support is None else torch.tensor(list(support))
        self.max_length: int | None = None
        self.device = torch.device("cpu")
        self.fingerprint = f"table-{seed}"
        self._table: dict[tuple[int, ...], Tensor] = {}
        self.reset()

    def fresh(self) -> TableModel:
        other = copy(self)
        other.reset()
        return other

    @property
    def length(self) -> int:
        return len(self.committed)

    def reset(self) -> None:
        self.committed: list[int] = []
        self.pending: list[tuple[int, int]] = []

    def logits(self, context: Sequence[int]) -> Tensor:
        """`[columns]` after a context."""
        key = (len(context), *context[-self.order :])
        if key not in self._table:
            seed = hash((self.seed, *key)) % 2**31
            row = self.scale * torch.randn(
                self.vocab_size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
            )
            self._table[key] = row if self.support is None else row[self.support]
        return self._table[key]

    def context_of(self, row: int) -> list[int]:
        """Committed tokens and the pending row's ancestors, itself included."""
        tail: list[int] = []
        while row >= 0:
            token, parent = self.pending[row]
            tail.append(token)
            row = parent
        return self.committed + tail[::-1]

    def extend(self, tokens: Tensor, parents: Sequence[int], last_rows: int = 0) -> Scores:
        start = len(self.pending)
        self.pending += zip(tokens.tolist(), parents, strict=True)
        rows = range(start, len(self.pending))[-last_rows:]
        contexts = [self.context_of(row) for row in rows]
        logits = torch.stack([self.logits(context) for context in contexts])
        hidden = torch.tensor([[len(context), context[-1], self.seed] for context in contexts], dtype=torch.float32)
        return Scores(logits, hidden)

    def keep(self, path: Sequence[int]) -> None:
        parent = -1
        for row in path:
            token, above = self.pending[row]
            assert above == parent, "a kept path must be a path"
            self.committed.append(token)
            parent = row
        self.pending = []
