"""Texts sampled from the target one token at a time, and the roots along them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from selector.distributions import Sampling, draw, refuse_undefined, warp
from selector.engine.language_model import LanguageModel


@dataclass(frozen=True)
class TextRoot:
    """A place in a text where a decoding step could start.

    Attributes:
        index: place of the root token in the text.
        position: tokens generated before the root.
        prev_probs, prev_hidden: the target's warped distribution `[vocab]` and hidden state `[d]` at the token before
            the root token; None where there is none.
        probs: the same after the root token, `[vocab]`.
    """

    index: int
    position: int
    prev_probs: Tensor | None
    prev_hidden: Tensor | None
    probs: Tensor


class Trajectory:
    """A sampled text and the target's cache along it, which always lacks the text's last token.

    The rows of sampled text are pending, each below the one before, until `commit`: so whatever is scored below
    several places of the text shares its rows. Token `i` is the target's pending row `i - target.length`.

    Attributes:
        tokens: prompt and generated tokens.
        prompt_length: number of prompt tokens, one or more.
        probs, hidden: the target's warped distribution `[vocab]` and hidden state `[d]` at the token before the last
            one; None for a text of one token.
        states: `[tokens, d]`, the hidden state before each token, zeros before the first; only where they are wanted.
    """

    def __init__(
        self,
        target: LanguageModel,
        prompt_tokens: Sequence[int],
        sampling: Sampling,
        generator: torch.Generator | None,
        end_tokens: Collection[int] = (),
        keep_states: bool = False,
    ) -> None:
        self.target, self.sampling, self.generator, self.end_tokens = target, sampling, generator, end_tokens
        self.tokens = list(prompt_tokens)
        self.prompt_length = len(self.tokens)
        self.probs: Tensor | None = None
        self.hidden: Tensor | None = None
        self._states = [torch.zeros(1, target.hidden_size, device=target.device)] if keep_states else None
        target.reset()
        if self.prompt_length > 1:
            self._run(0, self.prompt_length - 1)
            self.commit()

    @property
    def states(self) -> Tensor | None:
        """See the class."""
        if self._states is not None:
            self._states = [torch.cat([states.to(self._states[-1].dtype) for states in self._states])]
        return None if self._states is None else self._states[0]

    @property
    def position(self) -> int:
        """Number of generated tokens."""
        return len(self.tokens) - self.prompt_length

    @property
    def ended(self) -> bool:
        """Whether the last generated token ends the text."""
        return self.position > 0 and self.tokens[-1] in self.end_tokens

    def step(self) -> Tensor:
        """One target pass over the last token, then the next one; returns what it was drawn from, `[vocab]`."""
        probs = self._run(len(self.tokens) - 1, len(self.tokens))
        self.tokens.append(int(draw(probs[None], self.generator)))
        return probs

    def sample_roots(self, count: int, every: int, max_new_tokens: int) -> list[TextRoot]:
        """The next `count` roots, or those that are left; empty when the text is over.

        Roots are at 0, `every`, 2 `every`, .. generated tokens. Text behind the last one is not sampled.
        """
        roots: list[TextRoot] = []
        last = (max_new_tokens - 1) // every * every
        while len(roots) < count and self.position <= last and not self.ended:
            if self.position % every:
                self.step()
                continue
            place = len(self.tokens) - 1, self.position, self.probs, self.hidden
            roots.append(TextRoot(*place, probs=self.step()))
        return roots

    def commit(self) -> None:
        """Make the text part of the target's context, and drop all rows that are not text."""
        self.target.keep(range(len(self.tokens) - 1 - self.target.length))

    def _run(self, start: int, end: int) -> Tensor:
        """One pass over the tokens from `start` to before `end`, which continue the chain of pending rows.

        Raises UserError where the target has no distribution after them.
        """
        ids = torch.tensor(self.tokens[start:end], device=self.target.device)
        above = start - self.target.length - 1
        scores = self.target.extend(ids, range(above, above + len(ids)), last_rows=1 if self._states is None else 0)
        probs = warp(scores.logits[-1:], self.sampling)
        refuse_undefined(probs, "target")
        self.probs, self.hidden = probs[0], scores.hidden[-1]
        if self._states is not None:
            self._states.append(scores.hidden)
        return self.probs
