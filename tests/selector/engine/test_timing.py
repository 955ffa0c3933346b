"""Timers: medians by key, and seconds of passes."""

from __future__ import annotations

import torch

from selector.engine.timing import TimedModel, Timer
from tests.support.table_model import TableModel


def test_medians_by_key() -> None:
    timer = Timer(torch.device("cpu"))
    for seconds in (1.0, 9.0, 2.0):
        timer.add(("pass", 4), seconds)
    assert timer.median("pass", 4) == 2.0
    assert timer.run(("slow",), lambda: None) == timer.median("slow") >= 0
    assert timer.run(None, lambda: None) >= 0


def test_passes_are_timed_and_unchanged() -> None:
    model = TableModel(4, 0)
    timed = TimedModel(model, Timer(torch.device("cpu")))
    logits = timed.extend(torch.tensor([1, 2]), [-1, 0]).logits
    assert timed.seconds > 0
    assert timed.vocab_size == 4
    model.reset()
    assert torch.equal(model.extend(torch.tensor([1, 2]), [-1, 0]).logits, logits)
