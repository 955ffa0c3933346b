"""The index of a text against a search through all of it."""

from __future__ import annotations

import random
from functools import cache

import pytest

from selector.engine.text_index import LONGEST, MEMORY, TextIndex
from selector.features import Match


def searched(text: list[int], prompt: int) -> Match | None:
    """What the index must find, by comparing the end of a text with every earlier place."""

    def common(end: int) -> int:
        length = 0
        while length < min(end + 1, LONGEST) and text[end - length] == text[-1 - length]:
            length += 1
        return length

    lengths = {end: common(end) for end in range(len(text) - 1)}
    longest = max(lengths.values(), default=0)
    if not longest:
        return None
    ends = [end for end, length in lengths.items() if length == longest]
    start = ends[-1] + 1
    agreeing = sum(text[end + 1] == text[start] for end in ends)
    distance = len(text) - start
    return Match(longest, start, text[start], distance, len(ends), agreeing, start < prompt, _recent(tuple(text)))


@cache
def _recent(text: tuple[int, ...]) -> float:
    """The share of tokens that a copy got right, over all places with a match."""
    if len(text) < 2:
        return 0.0
    before, found = _recent(text[:-1]), searched(list(text[:-1]), 0)
    return before if found is None else before + MEMORY * ((found.token == text[-1]) - before)


def continued(text: list[int], start: int, length: int) -> list[int]:
    text = list(text)
    for place in range(start, start + length):
        text.append(text[place])
    return text[-length:]


def random_text(seed: int) -> list[int]:
    """Draws from an alphabet, and repeats of earlier pieces, some of them many times over."""
    source = random.Random(seed)
    alphabet, text = source.choice([1, 2, 3, 8, 40]), [0]
    while len(text) < 220:
        text += [source.randrange(alphabet) for _ in range(source.randrange(1, 12))]
        if source.random() < 0.6:
            start = source.randrange(len(text))
            text += text[start : start + source.randrange(1, 50)] * source.choice([1, 1, 2, 5])
    return text


@pytest.mark.parametrize("seed", range(12))
def test_matches_are_those_of_a_search_after_every_token(seed: int) -> None:
    text = random_text(seed)
    prompt = len(text) // 3
    index = TextIndex(text[:prompt])
    for end in range(prompt, len(text)):
        known = text[:end]
        match = index.match()
        assert match == searched(known, prompt)
        if match:
            assert index.copy(40) == continued(known, match.start, 40)
        index.append(text[end : end + 1])


@pytest.mark.parametrize("period", [1, 2, 3, 7, LONGEST - 1, LONGEST, LONGEST + 1, LONGEST + 2, 50])
def test_loops(period: int) -> None:
    text = [*range(100, 100 + period), *[token % period for token in range(4 * max(period, LONGEST))], 500]
    text += text[period : period + LONGEST + 20]
    index = TextIndex([])
    for end, token in enumerate(text, 1):
        index.append([token])
        assert index.match() == searched(text[:end], 0)


@pytest.mark.parametrize("seed", range(3))
def test_tokens_may_come_in_any_pieces(seed: int) -> None:
    source, text = random.Random(seed), random_text(seed)
    index, end = TextIndex(text[:5]), 5
    while end < len(text):
        piece = source.randrange(1, 30)
        index.append(text[end : end + piece])
        end += piece
        assert index.match() == searched(text[:end], 5)


def test_nothing_to_copy() -> None:
    for tokens in ([], [7], [7, 8, 9]):
        index = TextIndex(tokens)
        assert index.match() is None
        assert index.copy(5) == []


def test_memory_grows_with_the_text_and_not_faster() -> None:
    def states(count: int) -> int:
        source = random.Random(0)
        index = TextIndex([int(source.paretovariate(0.7)) % 500 for _ in range(count)])
        index.match()
        return len(index._next) + sum(map(len, index._next))

    assert states(4000) < 2.2 * states(2000)
