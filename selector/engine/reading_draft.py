"""A draft that reads the target's hidden states (the idea of EAGLE, arXiv 2401.15077, section 4).

Each row reads the state of the token before it: the target's where that token is committed, its own where it was
drafted. So a row of a drafted token is not the row that the same token has once it is accepted: decoding drops drafted
rows and runs accepted tokens again, together with the next root token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from selector.engine.causal_model import HuggingFaceModel
from selector.engine.language_model import LanguageModel, Scores


class ReadingDraft(HuggingFaceModel):
    """See `LanguageModel`; `read` comes before the pass over committed tokens."""

    reads_target = True
    _reading = False  # while the layers are probed

    def refresh(self) -> None:
        """See `HuggingFaceModel.refresh`."""
        self._reading = False
        super().refresh()
        self._reading = True

    def read(self, states: Tensor) -> None:
        """`[rows, d]`: the target's states before the first rows of the next pass, zeros before a text's first token.

        All other rows read the draft's own state of their parent, zeros where no earlier pass has made that.
        """
        self._given = states.to(self.device)

    def _forget(self) -> None:
        super()._forget()
        self._own = torch.zeros(0, self.model.config.hidden_size, dtype=self.dtype, device=self.device)
        self._given = self._own

    def _inputs(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        ids = super()._inputs(tokens, parents)
        if not self._reading:
            return ids
        base: Any = self.model.base_model
        states = torch.cat([self._own.new_zeros(1, self._own.shape[1]), self._own])
        known = [parent + 1 if parent < len(self._own) else 0 for parent in parents]
        before = states[torch.tensor(known, device=self.device)]
        before[: len(self._given)] = self._given
        self._given = self._given[:0]
        embedded = base.embed_tokens(ids).to(base.fuse.weight.dtype)  # the target's own, which may change its dtype
        inputs: Tensor = base.fuse(embedded, before).to(self.dtype)
        return inputs

    @torch.inference_mode()
    def extend(self, tokens: Tensor, parents: Sequence[int], last_rows: int = 0) -> Scores:
        """See `LanguageModel.extend`; only rows whose scores are returned may become parents of drafted ones."""
        scores = super().extend(tokens, parents, last_rows)
        skipped = self._own.new_zeros(len(parents) - len(scores.hidden), self._own.shape[1])
        self._own = torch.cat([self._own, skipped, scores.hidden.to(self._own.dtype)])
        return scores


def read(draft: LanguageModel, states: Tensor | None, start: int, count: int) -> None:
    """Before a pass over `count` tokens from `start`: the target's states, for a draft that reads them."""
    if reads_target(draft) and states is not None:
        reading: Any = draft  # or what wraps it
        reading.read(states[start : start + count])


def reads_target(model: LanguageModel) -> bool:
    """Whether a draft wants the target's hidden states."""
    return bool(getattr(model, "reads_target", False))
