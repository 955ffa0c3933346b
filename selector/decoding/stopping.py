"""Ends of a text: an end token, a stop string, or the number of tokens; and text that appears as it grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from selector.errors import UserError

Decode = Callable[[list[int]], str]
UNFINISHED = "\ufffd"  # a token may end in the middle of a character


class Ending(Protocol):
    """Decides where a text ends; `tokens` are those so far, `finish` names the end once it is there."""

    tokens: list[int]
    finish: str | None

    @property
    def remaining(self) -> int:
        """Tokens that may still come."""
        ...

    def accept(self, committed: Sequence[int]) -> list[int]:
        """Append what is within the end, and return it."""
        ...


class Stopping:
    """Cuts committed tokens at the first end: `finish` names it, `end`, `stop` or `length`.

    The end token is kept, and so is the token that completes a stop string, as transformers' `generate` does;
    `cut` then cuts the text right behind the stop string.
    """

    def __init__(
        self, max_new_tokens: int, end_ids: Sequence[int], stop_strings: str | Sequence[str], decode: Decode
    ) -> None:
        stop_strings = (stop_strings,) if isinstance(stop_strings, str) else tuple(stop_strings)
        if max_new_tokens < 1:
            raise UserError(f"max_new_tokens is {max_new_tokens}: give 1 or more.")
        if any(not text for text in stop_strings):
            raise UserError("stop_strings holds an empty string: leave it out.")
        self.tokens: list[int] = []
        self.finish: str | None = None
        self._limit, self._end_ids = max_new_tokens, frozenset(end_ids)
        self._stop_strings, self._decode = stop_strings, decode
        # A token holds one byte of the stop string at least, and up to four hold the character before it.
        self._window = max((len(text.encode(errors="replace")) for text in self._stop_strings), default=0) + 4

    @property
    def remaining(self) -> int:
        """Tokens that may still come."""
        return self._limit - len(self.tokens)

    def accept(self, committed: Sequence[int]) -> list[int]:
        """Append what is within the end, and return it."""
        before = len(self.tokens)
        for token in committed[: self.remaining]:
            self.tokens.append(token)
            if token in self._end_ids:
                self.finish = "end"
            elif self._stop_strings and self._ends_with_stop():
                self.finish = "stop"
            if self.finish:
                break
        if self.finish is None and self.remaining == 0:
            self.finish = "length"
        return self.tokens[before:]

    def cut(self, text: str) -> str:
        """`text` up to and with its first stop string."""
        ends = [text.index(stop) + len(stop) for stop in self._stop_strings if stop in text]
        return text[: min(ends)] if ends else text

    def _ends_with_stop(self) -> bool:
        tail = self._decode(self.tokens[-self._window :])
        return any(stop in tail for stop in self._stop_strings)


class CriteriaStopping:
    """Transformers' own stopping criteria, asked after every token as `generate` asks them.

    `sequence [1, length]` is the prompt with the tokens so far, on the prompt's device.
    """

    def __init__(self, prompt: Tensor, criteria: Any) -> None:
        """`prompt [1, length]`; one of the criteria limits the length."""
        self.tokens: list[int] = []
        self.finish: str | None = None
        self._criteria, self._start, self._limit = criteria, prompt.shape[1], int(criteria.max_length)
        self._ids = torch.cat([prompt, prompt.new_zeros(1, max(self._limit - self._start, 0))], 1)

    @property
    def remaining(self) -> int:
        """Tokens that may still come."""
        return self._limit - self._start - len(self.tokens)

    @property
    def sequence(self) -> Tensor:
        """`[1, length]`: the prompt with the tokens so far."""
        return self._ids[:, : self._start + len(self.tokens)]

    def accept(self, committed: Sequence[int]) -> list[int]:
        """Append what is within the end, and return it."""
        before = len(self.tokens)
        for token in committed[: self.remaining]:
            self._ids[0, self._start + len(self.tokens)] = token
            self.tokens.append(token)
            if bool(self._criteria(self.sequence, None)):
                self.finish = "stop" if self.remaining else "length"
                break
        return self.tokens[before:]


class TextStream:
    """Pieces of text as tokens come; a piece is held back while its last character is incomplete."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._context = self._read = 0

    def add(self, tokens: Sequence[int], last: bool = False) -> str:
        """New text after `tokens`; `last` gives out what is held back."""
        self._tokens += tokens
        known = self._decode(self._tokens[self._context : self._read])
        text = self._decode(self._tokens[self._context :])
        if text.endswith(UNFINISHED) and not last:
            return ""
        self._context, self._read = self._read, len(self._tokens)
        return text[len(known) :]
