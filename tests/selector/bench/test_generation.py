"""The bench of data generation: its rows add up, and the comparison is scaled as the table says."""

import json

import pytest
from rich.console import Console

from selector.bench import generation as bench
from selector.bench.generation import bench_generate, spread
from selector.errors import UserError
from selector.trees.expansion import ActionSpace
from tests.support.small_runs import small_config, table_pair


def test_rows(prompt_file, tmp_path):
    console = Console(record=True, width=200)
    path = tmp_path / "new" / "rows.json"
    config = small_config([prompt_file])
    rows = bench_generate(config, 2, path, table_pair(), console)
    assert json.loads(path.read_text()) == rows
    *units, everything = rows
    assert [row["unit"] for row in rows] == ["writing-0", "coding-0", "all"]
    assert everything["roots"] == sum(row["roots"] for row in units) > 2
    for row in rows:
        whole = sum(row["seconds"].values())
        assert all(seconds > 0 for seconds in row["seconds"].values())
        assert row["roots_per_minute"] == pytest.approx(60 * row["roots"] / whole)
        labelled = whole - row["seconds"]["trajectory"]
        assert row["times_cheaper"] == pytest.approx(row["by_action_seconds"] / labelled)
    text = console.export_text()
    assert "scaled to all 8 actions" in text.replace("\n", " ")
    assert f"{everything['roots_per_minute']:.1f}" in text


def test_by_action_cost_is_that_of_the_space_at_every_root(prompt_file, monkeypatch):
    monkeypatch.setattr(bench, "by_action_seconds", lambda *arguments: 0.5)
    row = bench_generate(small_config([prompt_file]), 1, None, table_pair(), Console(quiet=True))[0]
    assert row["by_action_seconds"] == 0.5 * 8 * row["roots"]


def test_by_action_draws_each_tree_and_drops_it(prompt_file, monkeypatch):
    pair, drawn = table_pair(), []
    draft_tree = bench.draft_tree
    monkeypatch.setattr(bench, "draft_tree", lambda *given: drawn.append(given[2]) or draft_tree(*given))
    config = small_config([prompt_file], num_samples=4)
    bench.measure(pair, bench.plan_units(config.generate, bench.load_prompts([prompt_file], 1))[0], [1, 2, 3], config,
                  ActionSpace(2, 1, 2))  # fmt: skip
    expected = spread(ActionSpace(2, 1, 2), bench.MEASURED_ACTIONS)
    assert drawn == [expansion for expansion in expected for _ in range(4)]
    assert pair.target.committed == pair.draft.committed == [1, 2]


def test_spread_actions_stand_for_the_space():
    space = ActionSpace(4, 8, 8)
    chosen = spread(space, 6)
    assert len(set(chosen)) == 6
    mean = sum(expansion.num_drafted for expansion in space.expansions) / len(space)
    assert sum(expansion.num_drafted for expansion in chosen) / 6 == pytest.approx(mean, rel=0.05)
    assert len(spread(ActionSpace(1, 0, 1), 6)) == 2


def test_refusals(prompt_file, tmp_path):
    with pytest.raises(UserError, match="units is 0"):
        bench_generate(small_config([prompt_file]), 0)
    with pytest.raises(UserError, match="json is"):
        bench_generate(small_config([prompt_file]), 1, tmp_path)
