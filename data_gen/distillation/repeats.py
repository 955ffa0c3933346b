"""Text that repeats itself, as small models do at low temperatures: a draft learns nothing from the tenth copy."""

from __future__ import annotations

from collections.abc import Sequence

MATCH = 12  # tokens
KEPT = 16  # repeated positions of a row


def kept_length(tokens: Sequence[int]) -> int:
    """How many of the first tokens hold at most `KEPT` that end a passage of `MATCH` tokens seen before."""
    known: set[tuple[int, ...]] = set()
    repeated = 0
    for end in range(MATCH, len(tokens) + 1):
        passage = tuple(tokens[end - MATCH : end])
        repeated += passage in known
        if repeated > KEPT:
            return end - 1
        known.add(passage)
    return len(tokens)
