"""Profiles on disk: the round trip, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from selector.artifacts.loading import read_json
from selector.artifacts.origin import content_hash
from selector.errors import UserError
from selector.latency import SCHEMA, LatencyProfile
from selector.provenance import Provenance
from selector.trees.expansion import parse_action
from tests.support.fitted_profiles import FITTED, FOLDER

PROFILE = LatencyProfile(
    contexts=(1, 512), widths=(1, 16), target_seconds=((0.05, 0.06), (0.07, 0.09)),
    draft_seconds=((0.004, 0.005), (0.005, 0.006)), overhead_seconds=(0.0, 0.001), plain_seconds=(0.05, 0.07),
)  # fmt: skip


def test_a_saved_profile_comes_back(tmp_path: Path) -> None:
    PROFILE.save(tmp_path / "profile.json")
    assert LatencyProfile.load(tmp_path / "profile.json") == PROFILE


def test_a_profile_without_provenance_still_loads_and_is_the_same_one(tmp_path: Path) -> None:
    old = {name: value for name, value in asdict(PROFILE).items() if name != "provenance"} | {"schema": 1}
    (tmp_path / "profile.json").write_text(json.dumps(old))
    found = LatencyProfile.load(tmp_path / "profile.json")
    assert replace(found, schema=SCHEMA) == PROFILE
    assert found == LatencyProfile.from_dict(old) == LatencyProfile.from_dict(asdict(found))
    assert found.provenance.kind == "measured"
    assert found.identity == replace(found, provenance=Provenance(note="new")).identity == content_hash(old)
    assert found.identity != replace(found, selector_seconds=1.0).identity


def test_hardware_in_words() -> None:
    assert "not recorded" in PROFILE.hardware
    known = replace(PROFILE, machine={"device": "cpu (some)", "threads": 1, "dtype": "float32"})
    assert known.hardware == "cpu (some), 1 thread, float32"
    assert replace(known, provenance=Provenance(hardware="one card")).hardware == "one card"


@pytest.mark.parametrize("name", FITTED)
def test_a_fitted_profile_is_its_formula(name: str) -> None:
    assert LatencyProfile.load(FOLDER / f"{name}.json") == FITTED[name]()


def test_a_pass_that_is_slower_on_less_is_a_disturbance() -> None:
    assert PROFILE.disturbance() is None
    assert replace(PROFILE, target_seconds=((0.13, 0.06), (0.07, 0.09))).disturbance() is None
    busy = replace(PROFILE, plain_seconds=(0.15, 0.07)).disturbance()
    assert busy is not None
    assert "plain generate over 1 rows took 150.0 ms on 1 tokens and 70.0 ms on more" in busy
    busy = replace(PROFILE, draft_seconds=((0.004, 0.5), (0.005, 0.006))).disturbance()
    assert busy is not None
    assert "a pass of the draft over 16 rows took 500.0 ms on 1 tokens and 6.0 ms on more" in busy


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
        ("provenance", {"kind": "guessed"}),
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


def test_a_copy_costs_its_target_rows_and_the_passes_that_draft() -> None:
    """Target rows 0.1 s each and draft rows 0.01 s, plus 0.001 s for each token of context."""
    profile = LatencyProfile(
        contexts=(0, 1000), widths=(1, 101), target_seconds=((0.1, 10.1), (0.1, 10.1)),
        draft_seconds=((0.01, 1.01), (1.01, 2.01)), overhead_seconds=(0.0, 0.0), plain_seconds=(0.1, 0.1),
        selector_seconds=5.0,
    )  # fmt: skip
    context = torch.tensor([10])

    def drafting(*passes: tuple[int, int]) -> float:
        return sum(0.001 * start + 0.01 * width for start, width in passes)

    for text, rows, passes, unused in [
        ("copy 4", 5, [], True),
        ("copy 4 | (2, 0, 2)", 9, [(10, 1), (11, 2)], False),
        ("copy 4 + (2, 0, 2)", 9, [(10, 5), (15, 2)], True),
        ("copy 4 + (2, 1, 2)", 10, [(10, 5), (15, 1), (16, 2)], True),
        ("(2, 1, 2)", 6, [(10, 1), (11, 1), (12, 2)], False),
        ("(1, 0, 0)", 1, [], True),
    ]:
        action = parse_action(text)
        seconds = 0.1 * rows + drafting(*passes)
        assert float(profile.step_time(context, action)) == pytest.approx(seconds), text
        chosen = seconds + 5 + unused * drafting((10, 1))
        assert float(profile.chosen_time(context, action)) == pytest.approx(chosen), text
