"""Texts sampled from the target one token at a time, and the roots along them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from selector.distributions import Sampling, draw, warp
from selector.engine.language_model import LanguageModel, Scores


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
            context = torch.tensor(self.tokens[:-1], device=target.device)
            scores = target.extend(context, range(-1, len(context) - 1), last_rows=1)
            target.keep(range(len(context)))
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
