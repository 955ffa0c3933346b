"""The exact law of whatever decodes: one run for every sequence of draws that it can make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from selector.engine import drafting
from selector.trees import verifier

Law = dict[tuple[int, ...], float]


def every_run(run: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch) -> Law:
    """The law of `run()`, one run for every sequence of draws that it can make."""
    law: Law = defaultdict(float)
    oracle = _Oracle()
    for module in (drafting, verifier):
        monkeypatch.setattr(module, "draw", oracle)
    while oracle.restart():
        law[tuple(run())] += oracle.weight
    return law


class _Oracle:
    """Depth-first search over draws."""

    def __init__(self) -> None:
        self._open: list[list[int]] | None = None

    def restart(self) -> bool:
        """Prepare the next run; False when all have been made."""
        if self._open is None:
            self._open = []
        else:
            while self._open and len(self._open[-1]) == 1:
                self._open.pop()
            if not self._open:
                return False
            self._open[-1].pop(0)
        self._at, self.weight = 0, 1.0
        return True

    def __call__(self, probs: Tensor, generator: Any = None, rows: Tensor | None = None) -> Tensor:
        laws = probs if rows is None else probs[rows]
        return torch.tensor([self._choose((law / law.sum()).tolist()) for law in laws.double()])

    def _choose(self, law: list[float]) -> int:
        assert self._open is not None
        if self._at == len(self._open):
            self._open.append([token for token, probability in enumerate(law) if probability > 0])
        choice = self._open[self._at][0]
        self._at += 1
        self.weight *= law[choice]
        return choice


def difference(law: Law, expected: Law) -> float:
    return max(abs(law.get(text, 0.0) - expected.get(text, 0.0)) for text in law.keys() | expected.keys())
