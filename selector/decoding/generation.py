"""What decoding hands out: a step of a stream, and a finished text."""

from __future__ import annotations

from dataclasses import dataclass

from selector.decoding.stats import DecodeStats
from selector.trees.expansion import Action


@dataclass
class Step:
    """One step of `Decoder.stream`.

    Attributes:
        tokens: emitted tokens; `text`: what they add to the text (it may lag behind by an incomplete character).
        expansion: the action that was taken; None for the step that only ends a stream.
        stats: of the generation so far.
        finish: `end` (an end token), `stop` (a stop string) or `length`; None while it goes on.
    """

    tokens: list[int]
    text: str
    expansion: Action
    stats: DecodeStats
    finish: str | None


@dataclass
class Generation:
    """A finished text: `tokens` hold the end token if there was one, `text` holds no special tokens."""

    text: str
    tokens: list[int]
    stats: DecodeStats
    finish: str
