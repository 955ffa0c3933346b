"""Index of a text by its own tokens: where the last ones stood before, and what came next.

An online suffix automaton (Blumer et al., 1985, Theoretical Computer Science 40): linear memory, a state stands for
tokens in a row that end at the same places. Of each state the number and the latest of its places are kept up to
date, which takes as many steps as the longest match has states. At 100,000 tokens a token and a look-up take 6
microseconds, and a token 0.5 kB (two shared cores, AVX2).
"""

from __future__ import annotations

from collections.abc import Sequence

from selector.features import Match

LONGEST = 32  # tokens of a match that are counted
MEMORY = 1 / 8  # weight of the latest token in the share of tokens that a copy got right


class TextIndex:
    """Every token of a prompt and of what follows it; those not indexed yet are when a match is asked for.

    Args:
        prompt: tokens; a copy from among them is told from one of later text.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self.tokens, self._prompt = list(prompt), len(prompt)
        # By state, the first one standing for no tokens: what follows, the longest own suffix that has other places
        # too, the most tokens, the number of places (their last tokens' indices) and the latest of them.
        self._next: list[dict[int, int]] = [{}]
        self._link, self._length, self._places, self._latest = [-1], [0], [0], [-1]
        self._whole = 0  # the state of the whole text
        self._state, self._matched = 0, 0  # of its longest suffix that has another place, of `LONGEST + 1` at most
        self._indexed = 0
        self._recent = 0.0
        self._earlier = 0, -1  # places and the latest of them before the last token was indexed

    def __len__(self) -> int:
        return len(self.tokens)

    def append(self, tokens: Sequence[int]) -> None:
        """More text."""
        self.tokens += tokens

    def match(self) -> Match | None:
        """The longest match of the last tokens, at its latest place; None where the last token is new."""
        for token in self.tokens[self._indexed :]:
            self._index(token)
        state = self._longest()
        if not state:
            return None
        places, latest = self._earlier
        start = latest + 1
        following = self._next[state][self.tokens[start]]
        return Match(
            length=min(self._matched, LONGEST),
            start=start,
            token=self.tokens[start],
            distance=len(self.tokens) - start,
            places=places,
            agreeing=self._places[following],
            in_prompt=start < self._prompt,
            recent=self._recent,
        )

    def copy(self, length: int) -> list[int]:
        """`length` tokens from the match on, running into themselves where it is nearer than that; none without one."""
        match = self.match()
        if match is None:
            return []
        return [self.tokens[match.start + place % match.distance] for place in range(length)]

    def _longest(self) -> int:
        """The state of the matched tokens, of `LONGEST` at most."""
        link = self._link[self._state]
        return link if self._matched > LONGEST and self._length[link] == LONGEST else self._state

    def _index(self, token: int) -> None:
        if self._longest():
            copied = self.tokens[self._earlier[1] + 1]
            self._recent += MEMORY * ((copied == token) - self._recent)
        whole = self._add({}, self._length[self._whole] + 1, 0, 1, self._indexed)
        state = self._whole
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = whole
            state = self._link[state]
        if state >= 0:
            self._link[whole] = self._split(state, token)
        self._whole = whole
        self._rematch(token)
        longest = self._longest()
        self._earlier = self._places[longest], self._latest[longest]
        state = self._state
        while state:
            self._places[state] += 1
            self._latest[state] = self._indexed
            state = self._link[state]
        self._indexed += 1

    def _rematch(self, token: int) -> None:
        """The longest suffix with another place, after `token`."""
        state, limit = self._link[self._whole], LONGEST + 1
        if self._length[state] > limit:  # then what matched before did so in full length, and goes on with `token`
            state = self._next[self._state][token]
            if self._length[self._link[state]] == limit:
                state = self._link[state]
        self._state, self._matched = state, min(self._length[state], limit)

    def _split(self, state: int, token: int) -> int:
        """The state of exactly the tokens of `state` with `token` behind them."""
        following, length = self._next[state][token], self._length[state] + 1
        if self._length[following] == length:
            return following
        known = self._link[following], self._places[following], self._latest[following]
        shorter = self._add(self._next[following].copy(), length, *known)
        while state >= 0 and self._next[state].get(token) == following:
            self._next[state][token] = shorter
            state = self._link[state]
        self._link[following] = shorter
        if self._state == following:
            self._state = shorter
        return shorter

    def _add(self, following: dict[int, int], length: int, link: int, places: int, latest: int) -> int:
        self._next.append(following)
        for column, value in (
            (self._length, length), (self._link, link), (self._places, places), (self._latest, latest),
        ):  # fmt: skip
            column.append(value)
        return len(self._next) - 1
