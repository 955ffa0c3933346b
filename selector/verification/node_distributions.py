"""Distributions at a tree's nodes, and the one function of them that verification needs: `Z(c) = sum (p - c q)_+`.

Every residual of NSS, Naive, SpecTr, SpecInfer, BV and Traversal Verification is `(p - c q)_+ / Z(c)` for a scalar
`c` (`p` the target's distribution, `q` the draft's). A node is thus a pair of rows and a few numbers, and no
vocabulary-sized state is ever carried.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

LARGEST_FACTOR = 1e30
"""`c` is cut here: a larger one overflows float32, and `c q` exceeds every `p` long before."""


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Drafts(NamedTuple):
    """The tokens drafted below one node, in order and with multiplicity, and their probabilities there."""

    row: int
    tokens: tuple[int, ...]
    target: tuple[float, ...]
    draft: tuple[float, ...]

    def distinct(self) -> dict[int, tuple[float, float]]:
        """Target and draft probability of each distinct token, in order of first appearance."""
        return dict(zip(self.tokens, zip(self.target, self.draft, strict=True), strict=True))


class NodeDistributions:
    """Rows of target and draft distributions; scalars go in and come out as Python floats.

    Args:
        target_probs: `[rows or more, vocab]`, float32 or float64.
        draft_probs: `[rows or more, columns]`, same dtype and device.
        support: `[columns]` tokens, ascending, outside which every draft distribution is zero. Passes then read these
            columns only, since `Z(c)` elsewhere is the target's mass there, whatever `c`. None: the vocabulary.
    """

    def __init__(self, target_probs: Tensor, draft_probs: Tensor, support: Tensor | None = None) -> None:
        self.target_probs = target_probs
        self.draft_probs = draft_probs
        self.support = support
        self._rejected: dict[int, tuple[int, int, float]] = {}
        self._rejected_row: dict[tuple[int, int], int] = {}
        self._after: dict[int, Tensor] = {}
        self._columns: dict[int, tuple[Tensor, Tensor, float]] = {}
        self._draft_totals: dict[int, float] = {}
        self._masses: dict[tuple[int, float], float] = {}
        self._remembered: dict[str, dict[Any, Any]] = {}

    def forget(self) -> None:
        """Free all that is remembered of the rows; it is computed again where it is asked for."""
        for known in (self._after, self._columns, self._draft_totals, self._masses, self._remembered):
            known.clear()

    def remember(
        self, name: str, keys: Iterable[Key], compute: Callable[[list[Key]], Mapping[Key, Value]]
    ) -> dict[Key, Value]:
        """Results that solvers share or come back for: `compute` gets the keys that nobody asked for before."""
        known: dict[Key, Value] = self._remembered.setdefault(name, {})
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        if missing:
            known.update(compute(missing))
        return known

    def at(
        self, rows: Sequence[int], tokens: Sequence[int], drafted: int | None = None
    ) -> tuple[list[float], list[float]]:
        """Target and draft probabilities of `tokens[i]` in `rows[i]`, in one transfer.

        Draft probabilities are those of the first `drafted` pairs, or of all.
        """
        if not rows:
            return [], []
        places = self._index([row * self.target_probs.shape[1] + t for row, t in zip(rows, tokens, strict=True)])
        own = places[:drafted]
        if self.support is not None:
            columns = torch.searchsorted(self.support, self._index(tokens[:drafted]))
            own = self._index(rows[:drafted]) * len(self.support) + columns
        numbers = torch.cat([self.target_probs.take(places), self.draft_probs.take(own)]).tolist()
        return numbers[: len(rows)], numbers[len(rows) :]

    def _index(self, numbers: Sequence[int]) -> Tensor:
        """A list becomes an array several times as fast as a tensor."""
        return torch.as_tensor(np.array(numbers, dtype=np.int64), device=self.target_probs.device)

    def after_rejection(self, row: int, token: int, chance: float) -> int:
        """A further row: the draft's distribution of `row`, and the target's once `token` was rejected, which had the
        probability `chance` there: `norm(p - p(token) e_token)`.
        """
        known = self._rejected_row.get((row, token))
        if known is None:
            known = self._rejected_row[row, token] = len(self.target_probs) + len(self._rejected)
            self._rejected[known] = row, token, chance
        return known

    def target(self, row: int) -> Tensor:
        """`[vocab]`: the target's distribution."""
        if row not in self._rejected:
            return self.target_probs[row]
        if row not in self._after:
            before, token, chance = self._rejected[row]
            probs = self.target_probs[before] * (1 / (1 - chance) if chance < 1 else 0.0)
            probs[token] = 0.0
            # Without any mass the row is needed through rounding only.
            self._after[row] = torch.where(probs.sum() > 0, probs, self.target_probs[before])
        return self._after[row]

    def draft(self, row: int) -> Tensor:
        """`[columns]`: the draft's distribution."""
        return self.draft_probs[self._rejected[row][0] if row in self._rejected else row]

    def columns(self, row: int) -> tuple[Tensor, Tensor]:
        """Target and draft probabilities of a row at the support's columns (or the whole vocabulary)."""
        self._load([row])
        target, draft, _ = self._columns[row]
        return target, draft

    def columns_of(self, tokens: Sequence[int]) -> list[int]:
        """Column of each token; tokens must lie in the support."""
        if self.support is None:
            return list(tokens)
        found: list[int] = torch.searchsorted(self.support, self.support.new_tensor(list(tokens))).tolist()
        return found

    def outside(self, row: int) -> float:
        """The target's mass outside the columns."""
        self._load([row])
        return self._columns[row][2]

    def positive_mass(self, rows: Sequence[int], factors: Sequence[float]) -> list[float]:
        """`Z(c) = sum (p - c q)_+` for each pair of a row and a `c`; a sum of positive terms, at most 1.

        Remembered: solvers that share distributions share passes, above all those at `c = 1`.
        """
        pairs = list(zip(rows, factors, strict=True))
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in self._masses]
        if missing:
            self._load(row for row, _ in missing)
            sums = []
            for row, factor in missing:
                target, draft, _ = self._columns[row]
                sums.append(torch.add(target, draft, alpha=-min(factor, LARGEST_FACTOR)).relu_().sum())
            for pair, inside in zip(missing, torch.stack(sums).tolist(), strict=True):
                self._masses[pair] = min(1.0, inside + self._columns[pair[0]][2])
        return [self._masses[pair] for pair in pairs]

    def draft_totals(self, rows: Iterable[int]) -> dict[int, float]:
        """Sum of each draft row in float64: what is left of it without some tokens is this minus theirs."""
        missing = [row for row in dict.fromkeys(rows) if row not in self._draft_totals]
        if missing:
            sums = torch.stack([self.columns(row)[1].sum(dtype=torch.float64) for row in missing])
            self._draft_totals.update(zip(missing, sums.tolist(), strict=True))
        return self._draft_totals

    def residual(self, row: int, factor: float, removed: Sequence[int], proposal: Tensor | None = None) -> Tensor:
        """`[vocab]`: `(p - c q)_+` without the `removed` tokens, not normalised.

        `proposal` is a distribution over `columns` that stands in for `q`.

        A residual without any mass is needed through rounding only, and is replaced by the target's own distribution.
        """
        target = self.target(row)
        other = self.draft(row) if proposal is None else proposal.to(target.dtype)
        if self.support is not None:
            other = torch.zeros_like(target).index_copy(0, self.support, other)
        residual = torch.add(target, other, alpha=-min(factor, LARGEST_FACTOR)).relu_()
        if removed:
            residual[list(removed)] = 0.0
        return torch.where(residual.sum() > 0, residual, target)

    def _load(self, rows: Iterable[int]) -> None:
        """Gather the columns of rows that are used for the first time, and the target's mass outside them."""
        missing = [row for row in dict.fromkeys(rows) if row not in self._columns]
        if self.support is None:
            self._columns.update((row, (self.target(row), self.draft(row), 0.0)) for row in missing)
            return
        outside = []
        parts = []
        for row in missing:
            whole = self.target(row)
            target = whole.index_select(0, self.support)
            parts.append((target, self.draft(row)))
            # Exact for float32 rows: both sums are float64, so the difference loses nothing that matters.
            outside.append(whole.sum(dtype=torch.float64) - target.sum(dtype=torch.float64))
        if missing:
            masses = torch.stack(outside).clamp_(min=0.0).tolist()
            for row, (target, draft), mass in zip(missing, parts, masses, strict=True):
                self._columns[row] = (target, draft, mass)
