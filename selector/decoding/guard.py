"""The guard: no speculation where plain decoding would be faster, until speculation pays again."""

from __future__ import annotations

from copy import copy
from functools import lru_cache

import torch

from selector.latency import CONTEXT_STEP, LatencyProfile
from selector.trees.expansion import Action, Expansion

PLAIN = Expansion(1, 0, 0)
DECAY = 63 / 64  # a step counts e times less 64 steps later
SURE = 2  # standard deviations that a loss must be larger than
TRIAL = 16  # steps before speculation is judged
PAUSES = 32, 1024  # tokens of the first pause and of the longest


class Guard:
    """Weighs what recent speculative steps committed against their cost, and pauses speculation when it loses.

    After each step that the policy chose, the seconds saved are what its tokens would have cost one by one, minus
    what the step cost. When their exponential sum over recent steps is surely below zero (by `SURE` standard
    deviations: a few unlucky steps are no reason), the next steps are plain: `PAUSES[0]` tokens, then a trial of
    `TRIAL` steps; a trial that loses too doubles the pause, one that does not ends it.

    Both costs come from the latency profile and never from the clock. So the choice depends on the profile and on
    past tokens alone: decoding stays lossless, and a seed gives the same text again.
    """

    def __init__(self, profile: LatencyProfile, selected: bool = False) -> None:
        """`selected`: a selector chooses the trees, and its own cost is part of each of its steps."""
        self._profile, self._selected = profile, selected
        self._seconds = lru_cache(maxsize=4096)(self._step_seconds)
        self._begin()

    def fresh(self) -> Guard:
        """The same guard for another text, of which it has seen nothing."""
        other = copy(self)
        other._begin()
        return other

    def _begin(self) -> None:
        self._saved, self._spread, self._steps = 0.0, 0.0, 0
        self._pause, self._resume = PAUSES[0], 0
        self._running: tuple[int, Action] | None = None

    def speculates(self, context_length: int) -> bool:
        """Whether the policy may choose a tree at the root after `context_length` tokens; asked once a step."""
        if self._running is not None:
            self._judge(context_length, *self._running)
            self._running = None
        self._context = context_length
        return context_length >= self._resume

    def chosen(self, expansion: Action) -> None:
        """The policy's choice at the root that was asked about last."""
        self._running = self._context, expansion

    def _judge(self, context_length: int, start: int, expansion: Action) -> None:
        """Account for the step that went from `start` to `context_length`."""
        place = start // CONTEXT_STEP
        tokens = context_length - start
        gain = tokens * self._seconds(place, PLAIN, False) - self._seconds(place, expansion, self._selected)
        self._saved = DECAY * self._saved + gain
        self._spread = DECAY**2 * self._spread + gain**2
        self._steps += 1
        if self._steps < TRIAL:
            return
        if self._saved >= -SURE * self._spread**0.5:
            self._pause = PAUSES[0]
        else:
            self._resume = context_length + self._pause
            self._pause = min(2 * self._pause, PAUSES[1])
            self._saved, self._spread, self._steps = 0.0, 0.0, 0

    def _step_seconds(self, place: int, expansion: Action, selected: bool) -> float:
        context = torch.tensor([place * CONTEXT_STEP + CONTEXT_STEP // 2])
        times = self._profile.chosen_time if selected else self._profile.step_time
        return float(times(context, expansion))
