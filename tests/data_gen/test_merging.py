"""`ddte generate --merge`: what belongs together becomes one set, anything else is refused and leaves nothing."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from data_gen import merging
from data_gen.checking import check_data_set
from data_gen.merging import merge
from data_gen.pipeline import generate
from selector.cli.main import main
from selector.dataset.dataset import RootDataset
from selector.dataset.manifest import Manifest
from selector.errors import UserError
from tests.support.disk_pair import rows
from tests.support.small_runs import small_config, table_pair

QUIET = Console(quiet=True)


def make(folder: Path, prompt_file: str, part: slice, **changes) -> Path:
    """A data set of some of the six prompts."""
    lines = Path(prompt_file).read_text().splitlines()[part]
    path = folder.parent / f"{folder.name}.jsonl"
    path.write_text("\n".join(lines))
    generate(small_config([str(path)], **changes), folder, table_pair(), QUIET)
    return folder


@pytest.fixture
def pair(tmp_path, prompt_file):
    return [make(tmp_path / "a", prompt_file, slice(0, 2)), make(tmp_path / "b", prompt_file, slice(2, 6), seed=1)]


def test_two_sets_become_one(tmp_path, pair):
    out = tmp_path / "merged"
    assert main(["generate", "--merge", f"[{pair[0]},{pair[1]}]", "--out", str(out)]) == 0
    assert rows(out) == rows(pair[0]) + rows(pair[1])
    assert len(RootDataset.load(out)) == len(RootDataset.load(pair[0])) + len(RootDataset.load(pair[1]))
    manifest, parts = Manifest.load(out), [Manifest.load(folder) for folder in pair]
    assert [unit.id for unit in manifest.units] == [unit.id for part in parts for unit in part.units]
    assert len({unit.shard for unit in manifest.units}) == 6
    assert manifest.config["generate"]["prompts"] == [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    check_data_set(out, QUIET)
    card = (out / "README.md").read_text()
    assert f"{len(rows(out))} roots of 6 trajectories" in card
    counts = [row["temperature"] for row in rows(out)].count(0.5)
    assert f"| temperature 0.5, top-p 1 | {counts} |" in card
    assert sorted(path.name for path in tmp_path.iterdir() if "merg" in path.name) == ["merged"]


def test_failures_and_prompts_are_named_as_in_the_sources(tmp_path, prompt_file, pair, monkeypatch):
    manifest = Manifest.load(pair[1])
    manifest.units[0] = replace(manifest.units[0], status="failed", rows=0, shard="", error="RuntimeError: no memory")
    manifest.save(pair[1])
    card = (pair[1] / "README.md").read_text()
    (pair[1] / "README.md").write_text(card.replace("None.", "- `writing-2` (temperature 0.5): no memory"))
    merged = merge(pair, tmp_path / "merged", QUIET)
    assert [unit.status for unit in merged.units].count("failed") == 1
    text = (tmp_path / "merged" / "README.md").read_text()
    assert "- `writing-2` (temperature 0.5): no memory" in text
    assert text.count("unnamed source: licence not stated") == 1
    assert "roots of 5 trajectories" in text


def test_a_merged_set_outlives_its_sources(tmp_path, pair):
    """Also where the disk knows no hard links."""
    whole = rows(pair[0]) + rows(pair[1])
    merge(pair, tmp_path / "merged", QUIET)
    for folder in pair:
        shutil.rmtree(folder)
    assert rows(tmp_path / "merged") == whole


def test_without_hard_links_shards_are_copied(tmp_path, pair, monkeypatch):
    def refuse(*paths):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    merge(pair, tmp_path / "merged", QUIET)
    assert rows(tmp_path / "merged") == rows(pair[0]) + rows(pair[1])


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("target_fingerprint", "other", "target_fingerprint is 'table-1' in .*'other'"),
        ("draft_fingerprint", "other", "draft_fingerprint is"),
        ("dtype", "bfloat16", "dtype is"),
        ("draft_warp", [1.0, 0.9], "draft_warp is"),
        ("verifiers", ["traversal", "nss"], "verifiers is"),
        ("action_space", [2, 2, 2], "action_space is"),
        ("scalars", ["a"], "scalars is"),
        ("complete", False, "complete is false"),
        ("generate", {"root_every": 4}, "generate.root_every is 3 in .*4 in"),
        ("generate", {"max_new_tokens": 9}, "generate.max_new_tokens is"),
        ("generate", {"num_samples": 4}, "generate.num_samples is"),
    ],
)
def test_what_does_not_belong_together_is_refused(tmp_path, pair, field, value, words):
    path = pair[1] / "manifest.json"
    data = json.loads(path.read_text())
    if field == "generate":
        data["config"]["generate"].update(value)
    else:
        data[field] = value
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=words):
        merge(pair, tmp_path / "merged", QUIET)
    assert not (tmp_path / "merged").exists()


def test_a_unit_that_comes_twice_is_refused(tmp_path, prompt_file, pair):
    other = make(tmp_path / "c", prompt_file, slice(0, 1))
    with pytest.raises(UserError, match=r"unit [0-9a-f]{16} is in .*/a' and in .*/c'"):
        merge([pair[0], other], tmp_path / "merged", QUIET)
    with pytest.raises(UserError, match="name two data sets"):
        merge(pair[:1], tmp_path / "merged", QUIET)
    assert not (tmp_path / "merged").exists()


def test_a_lost_shard_is_refused(tmp_path, pair):
    next((pair[1] / "shards").iterdir()).unlink()
    with pytest.raises(UserError, match="is missing or damaged"):
        merge(pair, tmp_path / "merged", QUIET)


def test_nothing_half_written_is_left(tmp_path, pair, monkeypatch):
    """A disk that is full at the end, an occupied folder, and what a killed merge left behind."""

    def full(*arguments):
        raise OSError(28, "No space left on device")

    (tmp_path / ".merged.partial" / "shards").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(merging, "write_data_card", full)
        with pytest.raises(UserError, match="No space left"):
            merge(pair, tmp_path / "merged", QUIET)
    assert not [path for path in tmp_path.iterdir() if "merg" in path.name]
    with pytest.raises(UserError, match="holds other files"):
        merge(pair, pair[0], QUIET)
    (tmp_path / ".merged.partial" / "shards").mkdir(parents=True)
    (tmp_path / ".merged.partial" / "shards" / "part-00000.parquet").write_text("half")
    merge(pair, tmp_path / "merged", QUIET)
    assert rows(tmp_path / "merged") == rows(pair[0]) + rows(pair[1])
