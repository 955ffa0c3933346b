"""The map of machines: its rows are those of each machine's own evaluation, and the sweep changes the draft alone."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from selector.cli.main import main
from selector.config import EvaluateConfig
from selector.evaluation.console import print_map
from selector.evaluation.evaluate import evaluate
from selector.evaluation.machine_map import COSTS, draft_cost, machine_map, with_draft_cost
from selector.features import SCALARS
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.network import NetworkShape, SelectorNetwork
from selector.provenance import Provenance
from selector.trees.expansion import Expansion
from tests.support.page import Page
from tests.support.profiles import COSTLY_DRAFT, make_flat_profile, make_profile
from tests.support.scripted_selectors import EvenNetwork, make_checkpoint
from tests.support.synthetic_data import SPACE, make_dataset, write_dataset

CONFIG = EvaluateConfig(bootstrap=50, study=False)
TEST = [f"prompt-{number:03d}" for number in range(0, 24, 2)]
MACHINES = {"cheap": make_profile(), "costly": replace(COSTLY_DRAFT, provenance=Provenance(hardware="one card"))}
CONTEXT = torch.tensor([20.0, 100.0], dtype=torch.float64)


def even_checkpoint() -> SelectorCheckpoint:
    """A selector whose policy head and regressor differ, and whose choice depends on the times."""
    checkpoint = make_checkpoint()
    checkpoint.network = EvenNetwork()
    return checkpoint


OWN = {
    "engine": ("no_drafting", "ratio_to_plain"), "static_over_plain": ("best_static", "ratio_to_plain"),
    "oracle_over_static": ("oracle", "ratio_to_best_static"),
    "selector_over_static": ("selector_regressor", "ratio_to_best_static"),
    "gap_recovered": ("selector_regressor", "gap_recovered"),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_a_row_is_what_that_machine_alone_gives(machine: str, tmp_path: Path) -> None:
    """Of the regressor, even where training preferred the policy head: that one knows one machine's times."""
    dataset = make_dataset(noise=0.1, verifiers=("specinfer", "naive"))
    evaluate([even_checkpoint()], dataset, MACHINES, CONFIG, tmp_path / "map", test_prompts=TEST)
    rows = evaluate([even_checkpoint()], dataset, MACHINES[machine], CONFIG, tmp_path / "own", test_prompts=TEST)
    figures = {(row["verifier"], row["policy"], row["metric"]): row for row in rows}
    content = json.loads((tmp_path / "map" / "map.json").read_text())
    mine = {row["verifier"]: row for row in content["rows"] if row["machine"] == machine}
    assert list(mine) == ["specinfer", "naive"]
    for field, key in OWN.items():
        own = figures[("specinfer", *key)]
        assert mine["specinfer"][field] == pytest.approx({end: own[end] for end in ("value", "low", "high")}), field
    assert mine["naive"]["selector_over_static"] is mine["naive"]["gap_recovered"] is None
    assert mine["specinfer"]["n_prompts"] == len(TEST)


def test_costs_of_a_machine() -> None:
    dataset = make_dataset(constant=1.4)
    mapped = machine_map([], dataset, dataset, MACHINES, "specinfer", CONFIG)
    cheap, costly = mapped.rows
    assert (cheap.draft_cost, cheap.width_cost) == pytest.approx((0.2, 1))
    assert (costly.draft_cost, costly.width_cost) == pytest.approx((0.3, 1.5))
    assert cheap.acceptance == costly.acceptance == pytest.approx(0.4)
    assert (cheap.selector_over_static, cheap.gap_recovered) == (None, None)
    assert cheap.best_static == Expansion(1, 0, 0), "every tree yields the same"
    assert mapped.provenance["costly"]["hardware"] == "one card"


def test_the_sweep_changes_nothing_but_the_draft() -> None:
    profile = replace(COSTLY_DRAFT, draft_seconds=((0.006, 0.009), (0.008, 0.01)))
    found = with_draft_cost(profile, 0.1, CONTEXT)
    assert draft_cost(found, CONTEXT) == pytest.approx(0.1)
    assert found.draft_seconds[0][1] / found.draft_seconds[0][0] == pytest.approx(1.5)
    assert replace(found, draft_seconds=profile.draft_seconds) == profile
    dataset = make_dataset(noise=0.1)
    mapped = machine_map([even_checkpoint()], dataset, dataset, MACHINES, "specinfer", CONFIG)
    assert [row.draft_cost for row in mapped.sweep] == pytest.approx(COSTS)
    plain = [row.static_over_plain.value or 0.0 for row in mapped.sweep]
    assert plain == sorted(plain, reverse=True), "a dearer draft gains less"
    assert mapped.sweep[0].best_static != mapped.sweep[-1].best_static
    own = {"own": with_draft_cost(make_profile(), COSTS[3], dataset.context_length.double())}
    same = machine_map([even_checkpoint()], dataset, dataset, own, "specinfer", CONFIG).rows[0]
    assert same == replace(mapped.sweep[3], machine="own")


def test_the_report_shows_map_and_sweep(tmp_path: Path) -> None:
    dataset = make_dataset(noise=0.1, verifiers=("specinfer", "naive"))
    evaluate([even_checkpoint()], dataset, MACHINES, CONFIG, tmp_path, test_prompts=TEST)
    page = Page(tmp_path)
    assert {"#machines"} <= set(page.links)
    for verifier in ("specinfer", "naive"):
        rows = page.table(f"{verifier} on each machine")
        assert [row[0] for row in rows] == ["1. cheap", "2. costly"]
    assert "Draft's cost" in page.pictures
    assert "one card" in dict(page.table("Pass times"))["2. costly"]
    assert (tmp_path / "draft_cost.png").stat().st_size > 0


def test_no_sweep_where_drafting_takes_no_time(tmp_path: Path) -> None:
    evaluate([make_checkpoint()], make_dataset(), make_flat_profile(), CONFIG, tmp_path, test_prompts=TEST)
    assert "Draft's cost" not in Page(tmp_path).pictures
    assert not (tmp_path / "draft_cost.png").exists()
    assert json.loads((tmp_path / "map.json").read_text())["sweep"] == []


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """Two data sets without a prompt in common, a checkpoint for them, and two profiles."""
    write_dataset(tmp_path / "data", prompts=8, roots=4)
    write_dataset(tmp_path / "seen", prompts=4, roots=4)
    checkpoint = make_checkpoint(
        shape=NetworkShape(6, 4, len(SCALARS), tuple(SPACE.limits), 2, (4, 2)), scalars=list(SCALARS), verifier="naive",
        target_fingerprint="t1", draft_fingerprint="d1",
        sampling_range={"temperature": [0.2, 1.0], "top_p": [1.0, 1.0]},
    )  # fmt: skip
    SelectorCheckpoint(SelectorNetwork(checkpoint.config.shape), checkpoint.config).save(tmp_path / "naive", "")
    for name, profile in MACHINES.items():
        profile.save(tmp_path / f"{name}.json")
    (tmp_path / "other").mkdir()
    make_profile().save(tmp_path / "other" / "cheap.json")
    return tmp_path


def evaluated(shelf: Path, **flags: str) -> int:
    given = {"data": f"{shelf}/data", "out": f"{shelf}/out", "evaluate.bootstrap": "20", "evaluate.study": "false"}
    words = [f"--{name}={value}" for name, value in (given | flags).items()]
    return main(["evaluate", *words])


def test_exported_checkpoints_on_several_machines(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = {"checkpoint": f"{shelf}/naive", "test_data": f"{shelf}/seen"}
    assert evaluated(shelf, **both, profile=f"[{shelf}/cheap.json,{shelf}/costly.json]") == 0
    printed = capsys.readouterr().out
    assert "naive on each machine" in printed
    assert "costly" in printed
    content = json.loads((shelf / "out" / "map.json").read_text())
    assert list(content["machines"]) == ["cheap", "costly"]
    assert all(row["selector_over_static"]["value"] > 0 for row in content["rows"])
    screen = io.StringIO()
    print_map(shelf / "out" / "map.json", Console(file=screen, width=80))
    assert "…" not in screen.getvalue()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({}, "run and checkpoint are neither given"),
        ({"run": "some", "checkpoint": "naive"}, "run and checkpoint are both given"),
        ({"checkpoint": "naive"}, "test_data is left out"),
        ({"checkpoint": "[naive,naive]", "test_data": "seen"}, "checkpoint names 'naive' twice"),
        ({"checkpoint": "naive", "test_data": "seen", "profile": "[cheap.json,other/cheap.json]"}, "different names"),
        ({"checkpoint": "naive", "test_data": "seen", "profile": "[]"}, "profile is []"),
    ],
)
def test_what_makes_no_sense_is_refused(
    shelf: Path, flags: Any, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shelf)
    assert evaluated(shelf, **flags) == 2
    assert sentence in capsys.readouterr().err
    assert not (shelf / "out").exists()
