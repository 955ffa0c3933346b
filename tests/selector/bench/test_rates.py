"""Figures of the decoding bench from records that are written by hand."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from selector.bench.coin import DECODING, StepArm, StepRecord
from selector.bench.rates import Measured, ratio, steady_seconds, step_sums
from selector.bench.texts import TextArm
from selector.statistics import resample_counts
from selector.trees.expansion import Expansion

NONE, CHAIN, TREE = Expansion(1, 0, 0), Expansion(1, 0, 2), Expansion(2, 0, 2)


def record(
    arm: int, tree: Expansion, seconds: float, expected: float, prompt: int = 0, charge: float = 0.0
) -> StepRecord:
    sections = [0.0] * len(DECODING)
    sections[DECODING.index("target")] = seconds
    return StepRecord(prompt, 0, arm, tree, round(expected), expected, tuple(sections), charge)


def arm(name: str, against: str | None = None) -> Any:
    return StepArm(name, SimpleNamespace(name="nss"), SimpleNamespace(), against)  # type: ignore[arg-type]


def measured(records: list[StepRecord], prompts: int = 4) -> Measured:
    plain = TextArm("plain", lambda *_: [])
    plain.runs = {(prompt, 0): (10, 10.0) for prompt in range(prompts)}
    return Measured([arm("no drafting"), arm("selector", "static"), arm("static")], records, [plain], prompts)


def world(noise: float = 0.0, slow: float = 1.0) -> list[StepRecord]:
    """Steps of a second; the selector commits 2 tokens a step, the static tree 1.6, no drafting 1."""
    rng = np.random.default_rng(0)
    rows = []
    for prompt in range(4):
        for step in range(50):
            shift = noise * rng.standard_normal()
            for place, tree, tokens in ((0, NONE, 1.0), (1, CHAIN, 2.0), (2, TREE, 1.6)):
                seconds = slow if step == 7 and place == 1 else 1.0
                rows.append(record(place, tree, seconds, tokens + (shift if place else 0.0), prompt))
    return rows


def test_rows() -> None:
    rows = {row["arm"]: row for row in measured(world()).rows()}
    assert list(rows) == ["plain", "no drafting", "selector", "static"]
    assert rows["selector"]["ratio_to_plain"] == pytest.approx(2.0)
    assert rows["selector"]["ratio_to_no_drafting"] == pytest.approx(2.0)
    assert rows["selector"]["ratio_to_static"] == pytest.approx(1.25)
    assert rows["selector"]["ratio_to_static_low"] == pytest.approx(1.25)
    assert rows["selector"]["steps"] == 200
    assert rows["selector"]["actions"] == {"(1, 0, 2)": 200}
    assert rows["selector"]["overhead_share"] == pytest.approx(0)
    assert rows["plain"]["ratio_to_plain"] == pytest.approx(1)
    assert "ratio_to_static" not in rows["static"]


def test_texts_that_loop_have_rows_of_their_own() -> None:
    looping = [record(0, NONE, 1.0, 1.0), record(1, CHAIN, 1.0, 9.0), record(2, TREE, 1.0, 3.0)]
    found = measured(world() + [one._replace(looping=True) for one in looping])
    rows = found.rows()
    assert rows[:4] == measured(world()).rows()
    assert found.width() == measured(world()).width()
    assert [(row["arm"], row["looping"]) for row in rows[4:]] == [
        ("no drafting", True), ("selector", True), ("static", True),
    ]  # fmt: skip
    assert rows[5]["ratio_to_static"] == pytest.approx(3.0)
    only = measured([one._replace(looping=True) for one in looping]).rows()
    assert [row["arm"] for row in only] == ["plain", "no drafting", "selector", "static"]


def test_a_selector_stands_beside_a_rule() -> None:
    found = measured(world())
    found.arms[1:2] = [found.arms[1]._replace(rule="static")]  # type: ignore[index]
    row = found.rows()[2]
    assert (row["rule"], row["ratio_to_rule"]) == ("static", pytest.approx(1.25))
    assert "rule" not in found.rows()[3]


def test_slow_moments_of_the_machine_weigh_on_the_raw_seconds_alone() -> None:
    found = measured(world(slow=26.0))
    row = next(row for row in found.rows() if row["arm"] == "selector")
    assert row["ratio_to_static"] == pytest.approx(1.25)
    assert row["ratio_to_static_as_it_happened"] == pytest.approx((400 / 300) / (400 / 200), rel=0.01)
    assert found.disorder() == pytest.approx(700 / 600)
    assert measured(world()).disorder() == pytest.approx(1)


def test_intervals_hold_the_truth_and_grow_with_noise() -> None:
    quiet, loud = measured(world(0.1)).width(), measured(world(1.0)).width()
    assert quiet is not None
    assert loud is not None
    assert 0 < quiet < loud


def test_charges_count_as_seconds() -> None:
    steps = [record(0, CHAIN, 1.0, 2.0, charge=0.5), record(0, CHAIN, 1.0, 2.0, charge=0.5)]
    assert step_sums(steps, 0, 1).seconds.tolist() == [steady_seconds(steps).sum()] == [3.0]


def test_without_runs_there_is_no_ratio() -> None:
    empty = measured([], prompts=2)
    empty.texts[0].runs.clear()
    assert all(row["ratio_to_plain"] is None for row in empty.rows())
    assert empty.width() is None
    rates = step_sums([], 0, 2).rates(resample_counts(2, 10, 0))
    assert ratio(rates, rates, 0.95).value is None


def test_resamples_without_a_step_are_left_out_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = measured([one for one in world() if one.prompt == 0]).rows()
    assert rows[2]["ratio_to_static"] == pytest.approx(1.25)


def test_parts_are_measured_by_themselves() -> None:
    """Texts that loop stay out, and so does plain decoding, which wrote other texts."""
    rows = [one._replace(setting=one.prompt % 2) for one in world()]
    rows += [record(1, CHAIN, 1.0, 9.0)._replace(looping=True)]
    rows = [one._replace(expected=4.0) if one.arm == 1 and one.prompt == 3 else one for one in rows]
    found = measured(rows).parts({"last": {(3, 1)}, "even": {(0, 0), (2, 0)}})
    assert [(row["part"], row["arm"], row["steps"]) for row in found] == [
        ("last", "selector", 50),
        ("even", "selector", 100),
    ]
    assert [row["ratio_to_static"] for row in found] == [pytest.approx(4.0 / 1.6), pytest.approx(1.25)]
    assert not any(key.startswith("ratio_to_plain") for row in found for key in row)
