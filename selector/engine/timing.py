"""Seconds by key, of model passes, and of the tokens that `generate` streams."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from selector.engine.language_model import LanguageModel, Scores


class Timer:
    """Collects seconds by key."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds: dict[Hashable, list[float]] = defaultdict(list)

    def now(self) -> float:
        """Seconds, after the device has finished its work."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def add(self, key: Hashable, seconds: float) -> None:
        """Keep a measurement."""
        self._seconds[key].append(seconds)

    def median(self, *key: Hashable) -> float:
        """Median seconds of a key."""
        return median(self._seconds[key])


class TokenTimes(BaseStreamer):
    """A streamer that notes when tokens came, and how many; what `generate` hands over first is the prompt."""

    def __init__(self, timer: Timer) -> None:
        self._timer, self._prompt = timer, True
        self.moments: list[float] = []
        self.counts: list[int] = []

    def put(self, value: Tensor) -> None:
        """Note the moment and the number of new tokens."""
        if not self._prompt:
            self.moments.append(self._timer.now())
            self.counts.append(value.numel())
        self._prompt = False

    def end(self) -> None:
        """Nothing is left to do."""


class TimedModel:
    """A language model that adds up the seconds of its passes."""

    def __init__(self, model: LanguageModel, timer: Timer) -> None:
        self._model, self._timer = model, timer
        self.seconds = 0.0

    def fresh(self) -> TimedModel:
        """See `LanguageModel.fresh`; its passes are counted for themselves."""
        return TimedModel(self._model.fresh(), self._timer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def extend(self, tokens: Tensor, parents: Sequence[int], last_rows: int = 0) -> Scores:
        """See `LanguageModel.extend`."""
        start = self._timer.now()
        scores = self._model.extend(tokens, parents, last_rows)
        self.seconds += self._timer.now() - start
        return scores
