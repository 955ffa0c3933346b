"""Texts sampled from the target one token at a time, and the roots along them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from selector.distributions import Sampling, draw, warp
from selector.engine.language_model import LanguageModel, Scores

PREFILL_ROWS = 512


def extend_chain(model: LanguageModel, tokens: Sequence[int], last_rows: int) -> Scores:
    """Run `tokens`, which follow the committed context, as a chain; only the last `last_rows` rows stay pending.

    Returns the scores of these rows. Long contexts go in pieces, so that no pass is wider than `PREFILL_ROWS`.
    """
    done = 0
    while len(tokens) - done > last_rows:
        piece = tokens[done : min(done + PREFILL_ROWS, len(tokens) - last_rows)]
        _chain(model, piece, 1)
        model.keep(range(len(piece)))
        done += len(piece)
    return _chain(model, tokens[done:], last_rows)


def _chain(model: LanguageModel, tokens: Sequence[int], last_rows: int) -> Scores:
    row_tokens = torch.tensor(list(tokens), device=model.device)
    return model.extend(row_tokens, range(-1, len(tokens) - 1), last_rows=last_rows)


class Trajectory:
    """A sampled text and the target's cache along it, which always lacks the text's last token.

    Attributes:
        tokens: prompt and generated tokens.
        prompt_length: number of prompt tokens, one or more.
        prev_probs, prev_hidden: the target's warped law `[vocab]` and hidden state `[d]` at the token before the
            last one; None for a text of one token.
    """

    def __init__(
        self,
        target: LanguageModel,
        prompt_tokens: Sequence[int],
        sampling: Sampling,
        generator: torch.Generator | None,
        end_tokens: Collection[int] = (),
    ) -> None:
        self.target, self.sampling, self.generator, self.end_tokens = target, sampling, generator, end_tokens
        self.tokens = list(prompt_tokens)
        self.prompt_length = len(self.tokens)
        self.prev_probs: Tensor | None = None
        self.prev_hidden: Tensor | None = None
        target.reset()
        if self.prompt_length > 1:
            scores = extend_chain(target, self.tokens[:-1], 1)
            target.keep([0])
            self._remember(scores)

    @property
    def position(self) -> int:
        """Number of generated tokens."""
        return len(self.tokens) - self.prompt_length

    @property
    def ended(self) -> bool:
        """Whether the last generated token ends the text."""
        return self.position > 0 and self.tokens[-1] in self.end_tokens

    def step(self) -> None:
        """One target pass over the last token, then the next one."""
        self.take(self.target.extend(torch.tensor(self.tokens[-1:], device=self.target.device), [-1]))

    def take(self, scores: Scores) -> None:
        """Sample the next token from row 0 of `scores`, which is the last token, the target's pending row 0."""
        self.target.keep([0])
        self._remember(Scores(scores.logits[:1], scores.hidden[:1]))
        assert self.prev_probs is not None
        self.tokens.append(int(draw(self.prev_probs[None], self.generator)))

    def _remember(self, scores: Scores) -> None:
        self.prev_probs = warp(scores.logits[-1], self.sampling)
        self.prev_hidden = scores.hidden[-1]
