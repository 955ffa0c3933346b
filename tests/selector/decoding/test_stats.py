"""Every moment of a decoding loop belongs to one section of the statistics."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest

from selector.decoding.decoder import Decoder
from selector.decoding.stats import SECTIONS, DecodeStats, Stopwatch
from selector.distributions import Sampling
from selector.trees.expansion import Expansion
from tests.support.table_model import TableModel


class Clock:
    """Each look at it takes a second; `wait` lets more pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", self)

    def __call__(self) -> float:
        self.now += 1
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_the_sections_sum_is_the_time_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    class Slow(TableModel):
        seconds = 0

        def extend(self, *arguments: Any, **options: Any) -> Any:
            clock.wait(self.seconds)
            return super().extend(*arguments, **options)

    pair: Any = SimpleNamespace(target=Slow(6, 0), draft=Slow(6, 1), end_ids=(), decode=str)
    pair.target.seconds, pair.draft.seconds = 100, 10
    stats = DecodeStats()
    consumer = 0.0
    start = clock.now
    for step in Decoder(pair, "nss", Expansion(2, 0, 2)).stream([1, 2], max_new_tokens=30, sampling=Sampling()):
        clock.wait(7)
        consumer += 7 + 1  # and the look at the clock after it
        stats = step.stats
    assert stats.total_seconds == clock.now - start - consumer - 1
    assert set(stats.seconds) == set(SECTIONS)
    assert stats.seconds["target"] == 101 * stats.steps
    assert stats.seconds["prefill"] >= 110, "both models run the prompt"
    assert sum(stats.shares.values()) == pytest.approx(1)
    outside = stats.total_seconds - stats.seconds["prefill"] - stats.seconds["draft"] - stats.seconds["target"]
    assert stats.overhead_share == pytest.approx(outside / (stats.total_seconds - stats.seconds["prefill"]))
    assert 0 < stats.overhead_share < 1


def test_a_section_inside_a_section_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    seconds = dict.fromkeys(SECTIONS, 0.0)
    stopwatch = Stopwatch(seconds)
    with stopwatch.section("selector"):
        clock.wait(5)
        with stopwatch.section("draft"):
            clock.wait(50)
        clock.wait(3)
    assert (seconds["selector"], seconds["draft"], seconds["other"]) == (10, 51, 1)


def test_statistics_of_several_texts_add_up() -> None:
    total, numbers = DecodeStats(), itertools.count(1)
    for _ in range(2):
        part = DecodeStats(*(next(numbers) for _ in range(5)))
        part.seconds["target"] = 2.0
        total.add(part)
    assert (total.tokens, total.steps, total.accepted, total.drafted, total.guarded) == (7, 9, 11, 13, 15)
    assert total.seconds["target"] == 4.0
    assert DecodeStats().shares == dict.fromkeys(SECTIONS, 0.0)
