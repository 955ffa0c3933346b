"""`ddte generate --check`: a sound set gives a table, a spoiled one a sentence."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console

from data_gen.checking import check_data_set, deeper
from data_gen.pipeline import generate
from selector.cli.main import main
from selector.dataset.dataset import RootDataset
from selector.dataset.manifest import Manifest
from selector.errors import UserError
from selector.trees.expansion import ActionSpace, Expansion
from selector.trees.verifiers import VERIFIERS
from tests.support.shards import seal
from tests.support.small_runs import small_config, table_pair

QUIET = Console(quiet=True)


@pytest.fixture
def folder(tmp_path, prompt_file):
    generate(small_config([prompt_file]), tmp_path / "data", table_pair(), QUIET)
    return tmp_path / "data"


def spoil(folder: Path, name: str, change) -> None:
    """Apply `change` to the first shard's column."""
    path = folder / "shards" / Manifest.load(folder).units[0].shard
    table = pq.read_table(path)
    column = table.column(name)
    values = pa.array(change(column.to_pylist()), column.type)
    pq.write_table(table.set_column(table.column_names.index(name), name, values), path)
    seal(folder)


def test_a_sound_set_gives_a_table(folder, capsys):
    data = RootDataset.load(folder)
    assert main(["generate", "--check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert f"{len(data)} roots of 6 trajectories, 0 failed" in out
    size = sum(path.stat().st_size for path in folder.glob("shards/*")) / len(data) / 1000
    assert f"{size:.1f} kB a root" in out
    best = data.mean_efficiency("nss").mean(0)
    tasks = sorted(set(data.tasks))
    means = [data.mean_efficiency("nss")[[name == task for name in data.tasks], best.argmax()].mean() for task in tasks]
    assert cells(out, "nss")[2:] == [f"{mean:.2f}" for mean in [*means, best.max()]]
    counts = [
        sum(pair == (task, [0.5, 1]) for pair in zip(data.tasks, data.settings.tolist(), strict=True)) for task in tasks
    ]
    assert cells(out, "0.5, 1")[1:] == [str(count) for count in [*counts, sum(counts)]]


def cells(out: str, first: str) -> list[str]:
    """The cells of the row that begins with `first`."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines()]
    return next(row for row in rows if row[0] == first)


def test_failures_are_counted_with_their_reasons(folder, capsys):
    manifest = Manifest.load(folder)
    (folder / "shards" / manifest.units[2].shard).unlink()
    manifest.units[2] = replace(manifest.units[2], status="failed", shard="", rows=0, error="out of memory [x]")
    manifest.save(folder)
    check_data_set(folder, Console(width=200))
    assert "1 failed" in (out := capsys.readouterr().out)
    assert "1 trajectories failed: out of memory [x]" in out


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_labels_of_every_verifier_grow_with_depth(tmp_path, prompt_file, verifier):
    """The check rests on it: no estimate of a level's share is below 0."""
    config = small_config([prompt_file], verifiers=[verifier], max_new_tokens=20)
    generate(config, tmp_path / "data", table_pair(), QUIET)
    check_data_set(tmp_path / "data", QUIET)


def test_deeper_pairs_cover_every_action_but_the_empty_one():
    space = ActionSpace(3, 1, 2)
    pairs = {(space.expansions[short], space.expansions[deep]) for short, deep in deeper(space)}
    assert len(pairs) == len(space) - 1
    assert (Expansion(1, 0, 2), Expansion(1, 0, 3)) in pairs
    assert (Expansion(3, 1, 1), Expansion(3, 1, 2)) in pairs
    assert (Expansion(1, 0, 1), Expansion(2, 1, 1)) in pairs  # without branches its trunk is a chain


def fallen(rows):
    """The first half of the first row's label of (2, 1, 2) is less than that of (2, 1, 1), by 1%."""
    number = {expansion: action for action, expansion in enumerate(ActionSpace(2, 1, 2).expansions)}
    rows[0][number[Expansion(2, 1, 2)]] = 0.99 * rows[0][number[Expansion(2, 1, 1)]]
    return rows


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("efficiency_nss", fallen, r"efficiency_nss of row 0 falls with depth .*\(2, 1, 1\)"),
        ("efficiency_nss", lambda rows: [[0.5] * len(row) for row in rows], "must lie between 1"),
        ("scalars", lambda rows: [[float("nan")] * len(row) for row in rows], "scalars of row 0 is NaN"),
        ("position", lambda rows: [0] * len(rows), "row 1 is row 0 once more"),
    ],
)
def test_what_cannot_be_is_one_sentence(folder, capsys, name, change, words):
    spoil(folder, name, change)
    with pytest.raises(UserError, match=words):
        check_data_set(folder, QUIET)
    capsys.readouterr()
    assert main(["generate", "--check", str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_rounding_step_of_float16_is_no_fall(folder):
    """One step below its neighbour passes, three do not."""
    data = RootDataset.load(folder)
    short, deep = deeper(data.manifest.space)[-1]
    base = data.efficiency["nss"][0, 0, short].half()
    step = torch.nextafter(base, torch.tensor(0.0, dtype=torch.float16))
    labels = [row.reshape(-1).tolist() for row in data.efficiency["nss"][: Manifest.load(folder).units[0].rows]]
    labels[0][deep] = float(step)
    spoil(folder, "efficiency_nss", lambda _: labels)
    check_data_set(folder, QUIET)
    labels[0][deep] = float(base) - 3 * float(base - step)
    spoil(folder, "efficiency_nss", lambda _: labels)
    with pytest.raises(UserError, match="falls with depth"):
        check_data_set(folder, QUIET)


def test_an_unfinished_set_and_no_set_are_refused(folder, tmp_path):
    manifest = Manifest.load(folder)
    manifest.complete = False
    manifest.save(folder)
    with pytest.raises(UserError, match="complete is false"):
        check_data_set(folder, QUIET)
    with pytest.raises(UserError, match=r"give one that holds manifest\.json"):
        check_data_set(tmp_path / "nowhere", QUIET)


def set_unit(key, value):
    return lambda manifest: manifest["units"][1].update({key: value})


def drop(*path):
    """Remove a key, or an entry of a list, of the manifest."""

    def change(manifest):
        *above, last = path
        for key in above:
            manifest = manifest[key]
        del manifest[last]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop("units", 1), r"part-00001\.parquet' holds [0-9] roots that the manifest does not count"),
        (set_unit("rows", 0), r"part-00001\.parquet' holds [0-9] roots that the manifest does not count"),
        (set_unit("rows", 2), "the manifest says 2"),
        (set_unit("status", "failed"), r"part-00001\.parquet' holds [0-9] roots"),
        (set_unit("status", "pending"), "complete is true, and 1 units are pending"),
        (drop("verifiers", 0), r"verifiers is \['traversal'\], and the shards have labels of 'nss'"),
        *((drop("units", 1, key), f"{key}|damaged") for key in ("id", "status", "shard", "rows", "seconds", "error")),
        *((drop("config", key), f"config.{key} of .* is missing") for key in ("pair", "action_space", "generate")),
        *((drop(field.name), f"{field.name} of .*(is missing|is None)") for field in fields(Manifest)),
    ],
)
def test_a_manifest_cut_by_hand_is_refused(folder, change, words):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=words):
        check_data_set(folder, QUIET)
