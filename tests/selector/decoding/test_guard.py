"""The guard: it pauses speculation that loses, tries again later, and never looks at the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from selector.decoding.decoder import Decoder
from selector.decoding.guard import PAUSES, PLAIN, TRIAL, Guard
from selector.decoding.sequence import SpeculativeSequence
from selector.distributions import Sampling
from selector.engine.language_model import Scores
from selector.latency import LatencyProfile
from selector.trees.expansion import Expansion
from tests.support.table_model import TableModel

CHAIN = Expansion(1, 0, 2)


def flat_profile(draft: float, selector: float = 0.0) -> LatencyProfile:
    """Times that do not depend on context or width: a chain of two takes `1 + 2 draft` seconds, a plain step 1."""
    return LatencyProfile((1,), (1,), ((1.0,),), ((draft,),), (0.0,), (1.0,), selector)


def simulate(guard: Guard, steps: int, committed: Callable[[int], int], expansion: Expansion = CHAIN) -> list[bool]:
    """Whether each step speculated, when a speculative step at a context commits `committed(context)` tokens."""
    guard = guard.fresh()
    context, speculated = 10, []
    for _ in range(steps):
        speculated.append(guard.speculates(context))
        if speculated[-1]:
            guard.chosen(expansion)
        context += committed(context) if speculated[-1] else 1
    return speculated


def runs(values: list[bool]) -> list[int]:
    """Lengths of the runs of equal values, the first of them speculative."""
    lengths, last = [0], True
    for value in values:
        if value != last:
            lengths.append(0)
            last = value
        lengths[-1] += 1
    return lengths


def test_speculation_that_pays_goes_on() -> None:
    assert all(simulate(Guard(flat_profile(0.1)), 300, lambda context: 2))


def test_a_few_unlucky_steps_are_no_reason() -> None:
    """A step takes 1.2 seconds and commits three tokens one time in eight, else one: 1.25 on average."""
    lucky = iter(number % 8 == 7 for number in range(10**6))
    assert all(simulate(Guard(flat_profile(0.1)), 300, lambda context: 3 if next(lucky) else 1))


def test_speculation_that_loses_is_tried_ever_less_often() -> None:
    lengths = runs(simulate(Guard(flat_profile(0.1)), 4000, lambda context: 1))
    trials, pauses = lengths[0::2], lengths[1::2]
    assert set(trials[:-1]) == {TRIAL}
    assert pauses[:6] == [PAUSES[0] * 2**n for n in range(6)] == [32, 64, 128, 256, 512, 1024]
    assert set(pauses[5:-1]) <= {PAUSES[1]}


def test_it_comes_back_when_speculation_pays_again() -> None:
    speculated = simulate(Guard(flat_profile(0.1)), 400, lambda context: 1 if context < 120 else 3)
    assert not all(speculated)
    assert all(speculated[-200:])
    later = simulate(Guard(flat_profile(0.1)), 900, lambda context: 1 if context < 120 or context > 900 else 3)
    assert not all(later[-300:])
    assert PAUSES[0] in runs(later)[3:], "a trial that wins starts with the short pause again"


@pytest.mark.parametrize(("selector", "pays"), [(0.4, True), (0.6, False)])
def test_the_selectors_cost_counts(selector: float, pays: bool) -> None:
    """Two tokens are worth 2 seconds; the chain takes 1.5, and the selector more."""
    guard = Guard(flat_profile(0.25, selector), selected=True)
    assert all(simulate(guard, 200, lambda context: 2)) == pays
    assert all(simulate(Guard(flat_profile(0.25, selector)), 200, lambda context: 2))


def test_a_selector_that_does_not_speculate_has_wasted_a_draft_pass() -> None:
    assert all(simulate(Guard(flat_profile(0.1)), 100, lambda context: 1, PLAIN))
    assert not all(simulate(Guard(flat_profile(0.1), selected=True), 100, lambda context: 1, PLAIN))


def tables() -> Any:
    return SimpleNamespace(target=TableModel(6, 0), draft=TableModel(6, 1), end_ids=(), decode=str)


def test_counted_and_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder(tables(), "nss", CHAIN, guard=Guard(flat_profile(0.6)))
    first = decoder.generate([1], 120, Sampling(), seed=5)
    assert 0 < first.stats.guarded < first.stats.steps
    assert first.stats.actions[PLAIN] >= first.stats.guarded
    assert first.stats.to_dict()["guarded"] == first.stats.guarded
    clock = iter(range(10**9))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)) ** 1.1)
    again = decoder.generate([1], 120, Sampling(), seed=5)
    assert again.tokens == first.tokens
    assert again.stats.actions == first.stats.actions


def test_a_held_back_step_does_not_run_the_draft(sequences: list[SpeculativeSequence]) -> None:
    passes: list[int] = []

    class Watched(TableModel):
        def extend(self, *arguments: Any, **options: Any) -> Scores:
            passes.append(sequences[-1].target.length)
            return super().extend(*arguments, **options)

    pair = tables()
    pair.draft = Watched(6, 1)
    decoder = Decoder(pair, "nss", CHAIN, guard=Guard(flat_profile(50.0)))
    stats = decoder.generate([1], 40, Sampling(), seed=1).stats
    assert stats.guarded > 0
    assert max(passes) <= TRIAL + stats.accepted
