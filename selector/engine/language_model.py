"""The protocol of a language model: one sequence, a cache, tree-shaped passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Scores(NamedTuple):
    """Of each new row: `logits [rows, vocab or support]` and `hidden [rows, hidden_size]` (after the final norm)."""

    logits: Tensor
    hidden: Tensor


class LanguageModel(Protocol):
    """A model with the KV rows of one sequence.

    Rows are *pending* from the `extend` that made them until the next `keep`, which makes one path of them
    part of the committed context and drops the others.

    Attributes:
        vocab_size: tokens shared by target and draft.
        hidden_size: width of `Scores.hidden`.
        support: `[columns]` token ids of the logits' columns, for a model with a reduced head; None when the
            columns are the vocabulary.
        max_length: positions that the model was made for; None when it has no limit.
        device: where tokens and scores live.
        fingerprint: short hash of the weights and the tokenizer, for checkpoints and data sets.
    """

    vocab_size: int
    hidden_size: int
    support: Tensor | None
    max_length: int | None
    device: torch.device

    @property
    def fingerprint(self) -> str:
        """Short hash, computed when first asked for."""
        ...

    @property
    def length(self) -> int:
        """Number of committed rows."""
        ...

    def fresh(self) -> LanguageModel:
        """The same weights with the rows of another sequence, none yet: sequences run beside each other on copies."""
        ...

    def reset(self) -> None:
        """Forget the sequence."""
        ...

    def extend(self, tokens: Tensor, parents: Sequence[int], last_rows: int = 0) -> Scores:
        """Run `tokens [rows]` in one pass as new pending rows.

        `parents[i]` is the pending row (counted since the last `keep`, over all calls) that row `i` follows,
        or -1 for the end of the committed context. A row sees the committed context and its own ancestors
        only; its position is `length + depth`. `last_rows` returns the scores of so many last rows only
        (0: all), which saves the head's work on a prompt.
        """
        ...

    def keep(self, path: Sequence[int]) -> None:
        """Commit the pending rows of `path` in order (each the parent of the next) and drop all others."""
        ...


def prefill(model: LanguageModel, tokens: Sequence[int]) -> None:
    """Forget the sequence and commit `tokens` in one pass; with none the context stays empty."""
    model.reset()
    ids = torch.tensor(tokens, dtype=torch.long, device=model.device)
    if len(ids):
        model.extend(ids, range(-1, len(ids) - 1), last_rows=1)
        model.keep(range(len(ids)))
