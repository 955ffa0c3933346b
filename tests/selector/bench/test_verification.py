"""`ddte bench verification`: its rows, its plain words, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selector.bench.verification import GOALS, verdict
from selector.cli.main import main
from selector.trees.verifiers import VERIFIERS

SMALL = ["bench", "verification", "--nodes", "[4, 9]", "--vocabularies", "[200]", "--seconds", "1e-6"]


def test_rows_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "rows.json"
    assert main([*SMALL, "--json", str(path)]) == 0
    rows = json.loads(path.read_text())
    assert [row["arm"] for row in rows] == 2 * ["floor", "softmax", *VERIFIERS]
    assert {(row["nodes"], row["vocab"]) for row in rows} == {(4, 200), (9, 200)}
    assert all(row["threads"] >= 1 and row["goal"] == GOALS.get(row["arm"]) for row in rows)
    printed = capsys.readouterr().out
    assert "200 tokens" in printed
    assert "threads: " in printed


def row(arm: str, multiple: float, nodes: int = 8) -> dict[str, Any]:
    return {"arm": arm, "multiple": multiple, "goal": GOALS.get(arm), "nodes": nodes, "vocab": 32_000}


def test_plain_words() -> None:
    assert verdict([row("nss", 3.0), row("khisti", 90.0)]) == "Every verifier with a goal meets it at every size."
    words = verdict([row("nss", 2.0), row("bv", 2.0), row("bv", 3.1), row("bv", 4.0, 16), row("spectr", 6.2)])
    assert words == (
        "Above their goals: bv (goal 3) at 2 of 3 sizes, at worst 4.0 at 16 nodes of 32,000 tokens; "
        "spectr (goal 6) at 1 of 1 sizes, at worst 6.2 at 8 nodes of 32,000 tokens."
    )


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--nodes", "[2]"], "nodes is [2]"),
        (["--nodes", "[]"], "nodes is []"),
        (["--vocabularies", "[10]"], "vocabularies is [10]"),
        (["--verifiers", '["bogus"]'], "verifier is 'bogus'"),
        (["--seconds", "0"], "seconds is 0"),
        (["--json", "/"], "which is a folder"),
    ],
)
def test_refused_before_anything_is_measured(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selector.bench.verification.measure", None)
    assert main([*SMALL, *flags]) == 2
    assert named in capsys.readouterr().err
