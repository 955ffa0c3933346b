"""Statistics of decoding: counts, and where the time goes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from selector.trees.expansion import Action

SECTIONS = ("prefill", "draft", "target", "verify", "cache", "selector", "other")


@dataclass
class DecodeStats:
    """Counts and seconds of one generation; they grow while it runs.

    Attributes:
        tokens: emitted tokens; those past an end token or a stop string are not counted.
        steps: target passes after the prompt's.
        accepted: tokens of trees accepted (the sum of `tau`); `accepted_copies`: those of them that were copied.
        drafted, copied: tree nodes scored, without the roots; a token that was drafted and copied is a copied one.
        guarded: steps that did not speculate because the guard held them back.
        undrafted: nodes below which nothing was drafted because the draft's logits there gave no distribution.
        actions: how often each action was run, after clipping to the tokens that were left.
        seconds: by section. `draft` and `target` are model passes with their distributions, `verify` accepting and the
            bonus draw, `cache` keeping the path, `selector` the index of the text, features and network, `other` the
            guard and the Python around them. On an accelerator, work is counted where the program waits for it.
        policy: what chose the trees.
    """

    tokens: int = 0
    steps: int = 0
    accepted: int = 0
    drafted: int = 0
    guarded: int = 0
    undrafted: int = 0
    copied: int = 0
    accepted_copies: int = 0
    actions: Counter[Action] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SECTIONS, 0.0))
    policy: str = ""

    @property
    def total_seconds(self) -> float:
        """Everything, the prompt's passes included."""
        return sum(self.seconds.values())

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens by total seconds."""
        return self.tokens / self.total_seconds if self.total_seconds else 0.0

    @property
    def block_efficiency(self) -> float:
        """Tokens committed per target pass, `tau + 1` on average."""
        return (self.accepted + self.steps) / self.steps if self.steps else 0.0

    @property
    def sources(self) -> dict[str, int]:
        """Committed tokens by where they come from; past an end token, too."""
        drafted = self.accepted - self.accepted_copies
        return {"copied": self.accepted_copies, "drafted": drafted, "target": self.steps}

    @property
    def overhead_share(self) -> float:
        """Share of the time after the prompt that is not a model pass."""
        decoding = self.total_seconds - self.seconds["prefill"]
        overhead = decoding - self.seconds["draft"] - self.seconds["target"]
        return overhead / decoding if decoding else 0.0

    @property
    def shares(self) -> dict[str, float]:
        """Share of each section in all seconds, the prompt's included."""
        total = self.total_seconds or 1.0
        return {name: seconds / total for name, seconds in self.seconds.items()}

    def add(self, other: DecodeStats) -> None:
        """Add another generation's counts and seconds."""
        self.tokens += other.tokens
        self.steps += other.steps
        self.accepted += other.accepted
        self.accepted_copies += other.accepted_copies
        self.drafted += other.drafted
        self.copied += other.copied
        self.guarded += other.guarded
        self.undrafted += other.undrafted
        self.actions.update(other.actions)
        for name, seconds in other.seconds.items():
            self.seconds[name] += seconds

    def to_dict(self) -> dict[str, Any]:
        """For JSON; actions are written as `parse_action` reads them."""
        return {
            "policy": self.policy,
            "tokens": self.tokens,
            "steps": self.steps,
            "tokens_per_second": self.tokens_per_second,
            "block_efficiency": self.block_efficiency,
            "sources": self.sources,
            "drafted": self.drafted,
            "copied": self.copied,
            "accepted": self.accepted,
            "guarded": self.guarded,
            "undrafted": self.undrafted,
            "overhead_share": self.overhead_share,
            "seconds": dict(self.seconds),
            "actions": {str(expansion): count for expansion, count in self.actions.most_common()},
        }


class Stopwatch:
    """Adds the time that passes to one section at a time, so that the sections' sum is the time that passed."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds
        self._section = "other"
        self._since = time.perf_counter()

    def switch(self, section: str) -> str:
        """From now on time belongs to `section`; returns the section before."""
        now = time.perf_counter()
        self.seconds[self._section] += now - self._since
        self._since = now
        before, self._section = self._section, section
        return before

    def restart(self) -> None:
        """Count nothing since the last switch: the caller of a generator held it up."""
        self._since = time.perf_counter()

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Time inside belongs to `name`, except where a section inside takes over."""
        before = self.switch(name)
        try:
            yield
        finally:
            self.switch(before)
