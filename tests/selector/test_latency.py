"""Profiles on disk: the round trip, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from selector.artifacts import read_json
from selector.errors import UserError
from selector.latency import LatencyProfile

PROFILE = LatencyProfile(
    contexts=(1, 512), widths=(1, 16), target_seconds=((0.05, 0.06), (0.07, 0.09)),
    draft_seconds=((0.004, 0.005), (0.005, 0.006)), overhead_seconds=(0.0, 0.001), plain_seconds=(0.05, 0.07),
)  # fmt: skip


def test_a_saved_profile_comes_back(tmp_path: Path) -> None:
    PROFILE.save(tmp_path / "profile.json")
    assert LatencyProfile.load(tmp_path / "profile.json") == PROFILE


def test_a_pass_that_is_slower_on_less_is_a_disturbance() -> None:
    assert PROFILE.disturbance() is None
    assert replace(PROFILE, target_seconds=((0.13, 0.06), (0.07, 0.09))).disturbance() is None
    busy = replace(PROFILE, draft_seconds=((0.004, 0.5), (0.005, 0.006))).disturbance()
    assert busy is not None
    assert "a draft pass of 16 rows took 500.0 ms on 1 tokens and 6.0 ms on more" in busy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("contexts", [512, 1]),
        ("contexts", [0, 512]),
        ("contexts", "12"),
        ("widths", [1, 1]),
        ("widths", [1]),
        ("widths", []),
        ("target_seconds", [[0.05, 0.06]]),
        ("target_seconds", [[0.05, 0.06], [0.07, 0.0]]),
        ("target_seconds", 1.0),
        ("draft_seconds", [[0.004, 0.005], [0.005]]),
        ("draft_seconds", [[0.004, "0.005"], [0.005, 0.006]]),
        ("overhead_seconds", [0.0]),
        ("overhead_seconds", [0.0, -0.1]),
        ("plain_seconds", [0.05, float("nan")]),
        ("plain_seconds", [0.05, 0]),
        ("selector_seconds", -1.0),
        ("schema", 99),
        ("colour", "blue"),
    ],
)
def test_a_broken_field_is_named(name: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(asdict(PROFILE) | {name: value}))
    with pytest.raises(UserError, match=r"profile\.json") as caught:
        LatencyProfile.load(path)
    assert name in str(caught.value) or name == "widths"


def test_other_things_than_profiles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    with pytest.raises(UserError, match="holds a list"):
        LatencyProfile.load(tmp_path / "list.json")
    with pytest.raises(UserError, match="cannot be read"):
        LatencyProfile.load(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        LatencyProfile.load(tmp_path / "none.json")


def test_json_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read .*: make it"):
        read_json(tmp_path, "make it")
