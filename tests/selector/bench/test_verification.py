"""`ddte bench verification`: its trees, its figures, its rows, and what it refuses."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from selector.bench.verification import (
    FLOOR,
    LEAST_ROUNDS,
    SOFTMAX,
    figures,
    median_interval,
    random_step,
    time_verifiers,
)
from selector.cli.main import main
from selector.trees.verifiers import VERIFIERS

SMALL = ["bench", "verification", "--nodes", "[4, 9]", "--vocabularies", "[200]", "--seconds", "1e-6"]


def test_rows_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "rows.json"
    assert main([*SMALL, "--json", str(path)]) == 0
    rows = json.loads(path.read_text())
    assert [row["arm"] for row in rows] == 2 * ["floor", "softmax", *VERIFIERS]
    assert {(row["nodes"], row["vocab"]) for row in rows} == {(4, 200), (9, 200)}
    assert all(row["threads"] >= 1 for row in rows)
    printed = capsys.readouterr().out
    assert "200 tokens" in printed
    assert "threads: " in printed


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


@pytest.mark.parametrize("nodes", [3, 8, 16, 33, 65])
def test_trees_have_the_size_asked_for(nodes: int) -> None:
    step = random_step(nodes, 300, seed=nodes)
    topology = step.tree.topology
    assert len(topology) == len(step.tree.tokens) == len(step.target_probs) == nodes
    assert all(early <= late for early, late in pairwise(topology.depths))
    assert len(step.tree.draft_probs) == topology.num_inner
    torch.testing.assert_close(step.tree.draft_probs, torch.softmax(step.draft_logits, -1))
    torch.testing.assert_close(step.target_probs, torch.softmax(step.target_logits, -1))
    # Drafted tokens are likely ones under the law of their parent's row, not of another one's.
    parents = torch.tensor(topology.parents[1:])
    drawn = step.tree.draft_probs[parents, step.tree.tokens[1:]]
    elsewhere = step.tree.draft_probs[(parents + 1) % topology.num_inner, step.tree.tokens[1:]]
    assert nodes == 3 or float(drawn.log().mean()) > float(elsewhere.log().mean()) + 1


def test_branches_share_nodes() -> None:
    assert any(len(set(entries)) < len(entries) for entries in random_step(33, 300, seed=1).tree.topology.children)


def test_every_arm_is_timed_as_often() -> None:
    found = time_verifiers(random_step(8, 200), ["nss", "traversal"], 1e-6)
    assert list(found) == [FLOOR, SOFTMAX, "nss", "traversal"]
    assert {figure.rounds for figure in found.values()} == {LEAST_ROUNDS}
    assert found[FLOOR][1:4] == (1.0, 1.0, 1.0)
    assert all(figure.seconds > 0 and figure.low <= figure.multiple <= figure.high for figure in found.values())


def test_multiples_are_taken_round_by_round() -> None:
    found = figures({FLOOR: [1.0, 10.0, 2.0], "slow": [3.0, 30.0, 6.0]})
    assert found["slow"] == (6.0, 3.0, 3.0, 3.0, 3)


def test_interval_of_a_median_covers_it_as_often_as_it_says() -> None:
    assert median_interval(range(1, 8)) == (1, 7)
    assert median_interval(range(1, 10)) == (2, 8)
    assert median_interval([5.0]) == (5.0, 5.0)
    draws = np.random.default_rng(0).exponential(size=(1000, 25))
    held = [low <= np.log(2) <= high for low, high in map(median_interval, draws.tolist())]
    assert 0.94 <= np.mean(held) <= 0.98
