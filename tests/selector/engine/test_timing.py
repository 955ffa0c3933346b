"""Timers: medians by key, and seconds of passes."""

from __future__ import annotations

import itertools

import pytest
import torch

from selector.engine.timing import TimedModel, Timer, TokenTimes
from tests.support.table_model import TableModel


def test_medians_by_key() -> None:
    timer = Timer(torch.device("cpu"))
    for seconds in (1.0, 9.0, 2.0):
        timer.add(("pass", 4), seconds)
    assert timer.median("pass", 4) == 2.0


def test_tokens_are_timed_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt is none of them; assisted generation brings several at a time."""
    timer = Timer(torch.device("cpu"))
    monkeypatch.setattr(timer, "now", itertools.count(5).__next__)
    times = TokenTimes(timer)
    for tokens in ([[1, 2, 3]], [4], [5, 6]):
        times.put(torch.tensor(tokens))
    times.end()
    assert (times.moments, times.counts) == ([5, 6], [1, 2])


def test_passes_are_timed_and_unchanged() -> None:
    model = TableModel(4, 0)
    timed = TimedModel(model, Timer(torch.device("cpu")))
    logits = timed.extend(torch.tensor([1, 2]), [-1, 0]).logits
    assert timed.seconds > 0
    assert timed.vocab_size == 4
    model.reset()
    assert torch.equal(model.extend(torch.tensor([1, 2]), [-1, 0]).logits, logits)
