"""Whole runs on small pairs: the data set, resuming after a kill, refusals, failures."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard
from rich.console import Console

from data_gen import pipeline
from data_gen.engines import local as working
from data_gen.pipeline import generate
from selector.config import ActionSpaceConfig, TrainConfig
from selector.dataset.dataset import RootDataset
from selector.dataset.manifest import Manifest
from selector.errors import UserError
from tests.support.disk_pair import rows
from tests.support.faults import Killed, fault
from tests.support.small_runs import small_config, table_pair

QUIET = Console(quiet=True)


def test_a_run_makes_a_valid_data_set(tmp_path, prompt_file):
    folder = tmp_path / "data"
    manifest = generate(small_config([prompt_file]), folder, table_pair(), QUIET)
    assert manifest.complete
    assert [unit.status for unit in manifest.units] == ["done"] * 6
    data = RootDataset.load(folder)
    assert len(data) == sum(unit.rows for unit in manifest.units)
    assert data.efficiency["nss"].shape == (len(data), 2, len(manifest.space))
    assert set(data.tasks) == {"writing", "coding"}
    assert not list(folder.rglob("*.tmp"))
    card = DatasetCard.load(folder / "README.md")
    assert f"{len(data)} roots of 6 trajectories" in card.text
    assert "| writing |" in card.text
    assert "- target: table-1; licence apache-2.0; fingerprint table-1\n" in card.text
    assert card.data.base_model == ["table-1", "table-2"]
    assert card.data.license == "unknown"  # that of the prompts is not stated
    assert card.data.configs == [{"config_name": "default", "data_files": "shards/*.parquet"}]


def test_a_finished_run_is_skipped_and_says_so(tmp_path, prompt_file, monkeypatch, capsys):
    folder, config = tmp_path / "data", small_config([prompt_file])
    generate(config, folder, table_pair(), QUIET)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(working, "label_unit", None)
    generate(replace(config, train=TrainConfig(batch_size=3)), folder, console=Console(width=300))  # loads no pair
    assert "6 of 6 trajectories are there already" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_lost_shard_is_made_again(tmp_path, prompt_file):
    folder, config = tmp_path / "data", small_config([prompt_file])
    manifest = generate(config, folder, table_pair(), QUIET)
    whole = rows(folder)
    lost, kept = (folder / "shards" / manifest.units[place].shard for place in (2, 3))
    lost.unlink()
    stamp = kept.stat().st_mtime_ns
    assert generate(config, folder, table_pair(), QUIET).complete
    assert rows(folder) == whole
    assert kept.stat().st_mtime_ns == stamp
    assert RootDataset.load(folder)


@pytest.mark.parametrize("damage", [b"", None])
def test_a_damaged_shard_is_made_again(tmp_path, prompt_file, damage):
    folder, config = tmp_path / "data", small_config([prompt_file])
    manifest = generate(config, folder, table_pair(), QUIET)
    whole = rows(folder)
    shard = folder / "shards" / manifest.units[1].shard
    shard.write_bytes(shard.read_bytes()[:-20] if damage is None else damage)
    (folder / "shards" / "part-00004.parquet.tmp").write_bytes(b"half")
    assert generate(config, folder, table_pair(), QUIET).complete
    assert rows(folder) == whole


def test_a_run_of_an_earlier_version_goes_on(tmp_path, prompt_file):
    """A setting that the stored configuration does not know has its default."""
    folder, config = tmp_path / "data", small_config([prompt_file])
    manifest = generate(config, folder, table_pair(), QUIET)
    del manifest.config["generate"]["system_prompt"]
    manifest.save(folder)
    assert generate(config, folder, table_pair(), QUIET).complete
    with pytest.raises(UserError, match=r"generate.system_prompt is '' there and 'Be brief.' here"):
        generate(small_config([prompt_file], system_prompt="Be brief."), folder, table_pair(), QUIET)


def test_a_set_without_names_of_its_models_gets_them_when_the_work_goes_on(tmp_path, prompt_file):
    folder, config = tmp_path / "data", small_config([prompt_file])
    assert generate(config, folder, table_pair(), QUIET).models == table_pair().names
    stored = json.loads((folder / "manifest.json").read_text())
    del stored["models"]
    (folder / "manifest.json").write_text(json.dumps(stored | {"schema": 2}))
    (folder / "shards" / "part-00001.parquet").unlink()
    generate(config, folder, table_pair(), QUIET)
    assert Manifest.load(folder).models == table_pair().names


def test_a_prompt_past_the_models_positions_is_a_named_failure(tmp_path, prompt_file, capsys):
    """The longest text of the file, `writing text 4`, has 14 tokens; 7 new ones and trees of depth 3 follow."""
    pair = table_pair()
    pair.draft.max_length = 13 + 7 + 3
    lines = Path(prompt_file).read_text().replace("writing text 4", "writing text four")
    Path(prompt_file).write_text(lines.replace("writing", "coding2"))
    manifest = generate(small_config([prompt_file]), tmp_path / "data", pair, Console(width=300))
    failed = [unit for unit in manifest.units if unit.status == "failed"]
    assert len(failed) == 3
    assert "it could pass the 23 positions of the draft" in failed[0].error
    assert "failed: prompt 'coding2-1'" in capsys.readouterr().out


def test_three_kills_lose_nothing_and_repeat_nothing(tmp_path, prompt_file):
    """At three writes in the midst of the work; `test_faults` kills at every one, `test_kills` at any moment."""
    config = small_config([prompt_file], settings_per_prompt=3)
    generate(config, tmp_path / "whole", table_pair(), QUIET)
    place = tmp_path / "killed"
    place.mkdir()
    folder = place / "data"
    written: dict[str, int] = {}
    for at in (21, 22, 23):
        with fault(place, at, "kill") as one, suppress(Killed):
            generate(config, folder, table_pair(), QUIET)
        assert one.happened
        done = {unit.shard for unit in Manifest.load(folder).units if unit.status == "done"}
        stamps = {name: (folder / "shards" / name).stat().st_mtime_ns for name in done}
        assert written.items() < stamps.items()  # what was done is never done twice
        written = stamps
    assert not Manifest.load(folder).complete
    manifest = generate(config, folder, table_pair(), QUIET)
    assert manifest.complete
    assert rows(folder) == rows(tmp_path / "whole")
    assert len(rows(folder)) == len(RootDataset.load(folder)) > 18
    assert {path.name for path in folder.rglob("*.parquet")} == {unit.shard for unit in manifest.units}


def test_a_failing_prompt_is_named_and_retried(tmp_path, prompt_file, monkeypatch, capsys):
    folder, config = tmp_path / "data", small_config([prompt_file])
    real = working.encode_chat

    def failing(tokenizer, messages, *arguments):
        if messages[0]["content"] == "coding text 1":
            raise RuntimeError("out of memory [x]")
        return real(tokenizer, messages, *arguments)

    monkeypatch.setattr(working, "encode_chat", failing)
    manifest = generate(config, folder, table_pair(), Console(width=300))
    assert "failed: prompt 'coding-1'" in capsys.readouterr().out
    assert [unit.status for unit in manifest.units].count("failed") == 1
    assert manifest.complete
    assert "out of memory" in (folder / "README.md").read_text()
    assert "coding-1" not in RootDataset.load(folder).prompt_ids
    monkeypatch.setattr(working, "encode_chat", real)
    assert {unit.status for unit in generate(config, folder, table_pair(), QUIET).units} == {"done"}
    generate(config, tmp_path / "whole", table_pair(), QUIET)
    assert rows(folder) == rows(tmp_path / "whole")


def test_all_failing_is_an_error(tmp_path, prompt_file, monkeypatch):
    monkeypatch.setattr(working, "encode_chat", None)
    with pytest.raises(UserError, match="every trajectory failed"):
        generate(small_config([prompt_file]), tmp_path / "data", table_pair(), QUIET)


def test_another_run_in_the_folder_is_refused(tmp_path, prompt_file):
    folder, config = tmp_path / "data", small_config([prompt_file])
    generate(config, folder, table_pair(), QUIET)
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(UserError, match=r"generate.seed is 0 there and 5 here"):
        generate(small_config([prompt_file], seed=5), folder, table_pair(), QUIET)
    with pytest.raises(UserError, match=r"action_space.num_branches is 2 there and 3 here"):
        generate(replace(config, action_space=ActionSpaceConfig(3, 1, 2)), folder, table_pair(), QUIET)
    other = table_pair()
    other.draft.fingerprint = "another"
    with pytest.raises(UserError, match="draft_fingerprint is"):
        generate(replace(config, pair=replace(config.pair, draft="elsewhere")), folder, other, QUIET)
    Path(prompt_file).write_text(Path(prompt_file).read_text().replace("text 4", "text five"))
    with pytest.raises(UserError, match="other prompts"):
        generate(config, folder, table_pair(), QUIET)
    assert (folder / "manifest.json").read_bytes() == before


def test_a_folder_in_which_a_run_is_at_work_is_refused(tmp_path, prompt_file, monkeypatch):
    folder, config, labelled = tmp_path / "data", small_config([prompt_file]), working.label_unit
    seen = []

    def second_run(*arguments):
        with pytest.raises(UserError, match="another run is at work"):
            generate(config, folder, table_pair(), QUIET)
        seen.append(1)
        return labelled(*arguments)

    monkeypatch.setattr(working, "label_unit", second_run)
    assert generate(config, folder, table_pair(), QUIET).complete
    assert len(seen) == 6
    assert generate(config, folder, table_pair(), QUIET).complete


def test_other_files_in_the_folder_are_refused(tmp_path, prompt_file):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="holds other files"):
        generate(small_config([prompt_file]), folder, table_pair(), QUIET)
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_nothing_is_written_for_a_broken_prompt_file(tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps({"id": "a"}) + "\n")
    with pytest.raises(UserError, match="line 1"):
        generate(small_config([str(broken)]), tmp_path / "data", table_pair(), QUIET)
    assert not (tmp_path / "data").exists()


def test_a_full_disk_stops_the_run_and_it_goes_on_later(tmp_path, prompt_file, monkeypatch):
    folder, config = tmp_path / "data", small_config([prompt_file])
    real, count = pipeline.write_table, iter(range(100))

    def full(*arguments):
        if next(count) == 2:
            raise OSError(28, "No space left on device")
        real(*arguments)

    monkeypatch.setattr(pipeline, "write_table", full)
    with pytest.raises(UserError, match="No space left"):
        generate(config, folder, table_pair(), QUIET)
    assert [unit.status for unit in Manifest.load(folder).units] == ["done"] * 2 + ["pending"] * 4
    assert generate(config, folder, table_pair(), QUIET).complete
