"""The data set on disk: what is written is what is read, and what is broken is refused by name."""

import dataclasses
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from selector.artifacts.origin import content_hash
from selector.dataset.dataset import RootDataset
from selector.dataset.manifest import Manifest, Unit
from selector.dataset.records import RootRecord, to_table, write_table
from selector.errors import UserError
from selector.features import HIDDEN
from selector.trees.expansion import ActionSpace
from tests.support.shards import seal, write_shard

SPACE = ActionSpace(2, 1, 2)
VERIFIERS = ["naive", "traversal"]


def make_record(index: int, **changes) -> RootRecord:
    generator = torch.Generator().manual_seed(index)
    depth = torch.tensor([float(expansion.max_depth) for expansion in SPACE.expansions])
    record = RootRecord(
        prompt_id=f"prompt-{index // 2}", task="coding", prompt_index=index // 2, position=16 * index,
        context_length=10 + index, temperature=0.6, top_p=0.9, top_k=0, draft_temperature=0.6, draft_top_p=0.9,
        target_hidden=torch.randn(6, generator=generator),
        draft_hidden_prev=torch.randn(4, generator=generator),
        draft_hidden_root=torch.randn(4, generator=generator),
        scalars=torch.randn(3, generator=generator),
        efficiency={name: 1 + depth * torch.rand(2, len(SPACE), generator=generator) for name in VERIFIERS},
        standard_error={name: torch.rand(len(SPACE), generator=generator) for name in VERIFIERS},
    )  # fmt: skip
    return dataclasses.replace(record, **changes)


def write_dataset(folder, records, **changes) -> None:
    half = len(records) // 2
    write_shard(folder / "shards" / "part-00000.parquet", records[:half])
    write_shard(folder / "shards" / "part-00001.parquet", records[half:])
    units = [
        Unit("a", "done", "part-00000.parquet", half, 1.0),
        Unit("b", "failed", error="out of memory"),
        Unit("c", "done", "part-00001.parquet", len(records) - half, 1.0),
    ]
    manifest = Manifest(
        config={"seed": 3}, action_space=(2, 1, 2), verifiers=VERIFIERS, scalars=["a", "b", "c"],
        hidden_sizes={"target": 6, "draft": 4}, target_fingerprint="t", draft_fingerprint="d", units=units,
        complete=True,
    )  # fmt: skip
    dataclasses.replace(manifest, **changes).save(folder)


def test_round_trip(tmp_path):
    records = [make_record(index) for index in range(6)]
    write_dataset(tmp_path, records)
    dataset = RootDataset.load(tmp_path)
    assert len(dataset) == 6
    assert dataset.prompt_ids == ["prompt-0", "prompt-0", "prompt-1", "prompt-1", "prompt-2", "prompt-2"]
    for row, record in enumerate(records):
        for name in HIDDEN:
            assert torch.equal(dataset.hidden[name][row], getattr(record, name).half().float())
        assert torch.equal(dataset.scalars[row], record.scalars)
        for verifier in VERIFIERS:
            assert torch.equal(dataset.efficiency[verifier][row], record.efficiency[verifier].half().float())
            assert torch.equal(dataset.standard_error[verifier][row], record.standard_error[verifier].half().float())
    assert dataset.settings[0].tolist() == pytest.approx([0.6, 0.9])
    assert dataset.context_length.tolist() == list(range(10, 16))
    assert dataset.mean_efficiency("naive").shape == (6, len(SPACE))
    assert not [name for name in os.listdir(tmp_path / "shards") if name.endswith(".tmp")]


def test_subset_keeps_rows_together(tmp_path):
    write_dataset(tmp_path, [make_record(index) for index in range(6)])
    dataset = RootDataset.load(tmp_path)
    part = dataset.subset([4, 1])
    assert part.prompt_ids == ["prompt-2", "prompt-0"]
    assert torch.equal(part.scalars, dataset.scalars[[4, 1]])
    assert torch.equal(part.efficiency["naive"], dataset.efficiency["naive"][[4, 1]])


def test_values_past_float16_are_clipped(tmp_path):
    write_dataset(tmp_path, [make_record(0, target_hidden=torch.full((6,), 1e6)), make_record(1)])
    assert RootDataset.load(tmp_path).hidden["target_hidden"][0].max() == 65504


def spoiled_labels(value: float) -> dict[str, torch.Tensor]:
    labels = make_record(0).efficiency
    labels["traversal"][1, 5] = value
    return labels


@pytest.mark.parametrize(("spread", "accepted"), [(0.5, True), (0.0, False)])
def test_a_mean_above_its_bound_is_refused_where_it_is_no_noise(tmp_path, spread, accepted):
    """Labels of traversal are unbiased and not bounded: with few roots an honest mean may pass 1 + depth."""
    records = []
    for number in range(8):
        labels = make_record(number).efficiency
        depth = SPACE.expansions[5].max_depth
        labels["traversal"][:, 5] = 1 + depth + 0.01 + (spread if number % 2 else -spread)
        records.append(make_record(number, efficiency=labels))
    write_dataset(tmp_path, records)
    if accepted:
        assert len(RootDataset.load(tmp_path)) == 8
    else:
        with pytest.raises(UserError, match="mean efficiency_traversal of action 5"):
            RootDataset.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"efficiency": spoiled_labels(float("nan"))}, "efficiency_traversal of row 0 is NaN"),
        ({"efficiency": spoiled_labels(0.875)}, "efficiency_traversal of row 0 for action 5 is 0.875"),
        ({"efficiency": spoiled_labels(5.125)}, "must lie between 1 and 5"),
        ({"scalars": torch.tensor([0.0, float("inf"), 0.0])}, "scalars of row 0"),
        ({"draft_hidden_root": torch.full((4,), float("nan"))}, "draft_hidden_root of row 0"),
        ({"context_length": -1}, "context_length"),
    ],
)
def test_broken_rows_are_refused(tmp_path, changes, word):
    write_dataset(tmp_path, [make_record(0, **changes), make_record(1)])
    with pytest.raises(UserError, match=word):
        RootDataset.load(tmp_path)


def test_one_estimate_may_pass_the_bound_of_its_mean_and_the_mean_may_not(tmp_path):
    write_dataset(tmp_path / "one", [make_record(0, efficiency=spoiled_labels(3.5)), make_record(1)])
    RootDataset.load(tmp_path / "one")
    labels = make_record(0).efficiency
    labels["traversal"][:, 5] = 3.5
    write_dataset(tmp_path / "all", [make_record(row, efficiency=labels) for row in range(2)])
    with pytest.raises(UserError, match="mean efficiency_"):
        RootDataset.load(tmp_path / "all")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"schema": 99}, "schema"),
        ({"complete": False}, "complete is false"),
        ({"units": [Unit("a", "done", "part-00000.parquet", 5, 1.0)]}, "rows of .* is 1: the manifest says 5"),
        ({"units": [Unit("a", "done", "part-00007.parquet", 1, 1.0)]}, "part-00007.parquet' is missing"),
        ({"units": []}, "units have no rows"),
        ({"scalars": ["a"]}, "scalars has a row of length 3"),
        ({"hidden_sizes": {"target": 5, "draft": 4}}, "target_hidden has a row of length 6"),
        ({"verifiers": ["naive", "nss"]}, "column efficiency_nss is missing"),
        ({"action_space": (2, 2, 2)}, "efficiency_naive has a row of length"),
    ],
)
def test_rows_that_do_not_fit_the_manifest_are_refused(tmp_path, changes, word):
    write_dataset(tmp_path, [make_record(0), make_record(1)], **changes)
    with pytest.raises(UserError, match=word):
        RootDataset.load(tmp_path)


def test_a_damaged_manifest_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no manifest\.json"):
        RootDataset.load(tmp_path)
    write_dataset(tmp_path, [make_record(0), make_record(1)])
    path = tmp_path / "manifest.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "verifers": []}))
    with pytest.raises(UserError, match=r"verifers of .* is unknown"):
        RootDataset.load(tmp_path)
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(UserError, match="is not JSON"):
            RootDataset.load(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="cannot be read"):
        RootDataset.load(tmp_path)


def test_a_damaged_shard_is_refused(tmp_path):
    write_dataset(tmp_path, [make_record(0), make_record(1)])
    path = tmp_path / "shards" / "part-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"part-00001.parquet' cannot be read"):
        RootDataset.load(tmp_path)


def test_manifest_hash_follows_its_content(tmp_path):
    write_dataset(tmp_path, [make_record(0), make_record(1)])
    manifest = Manifest.load(tmp_path)
    assert manifest.hash() == Manifest.load(tmp_path).hash()
    assert manifest.hash() != dataclasses.replace(manifest, seed=1).hash()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"action_space": [2, "a", 2]}, "action_space.1 is 'a'"),
        ({"hidden_sizes": [6, 4]}, "hidden_sizes is"),
        ({"verifiers": None}, "verifiers is None"),
        ({"draft_warp": "foo"}, "draft_warp is 'foo'"),
        ({"units": [{"id": "a", "rows": "x"}]}, "units.0.rows is 'x'"),
    ],
)
def test_fields_of_a_wrong_kind_are_refused(tmp_path, changes, word):
    write_dataset(tmp_path, [make_record(0), make_record(1)])
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(UserError, match=rf"manifest.json' is damaged \({word}"):
        RootDataset.load(tmp_path)


def retyped(path, name):
    table = pq.read_table(path)
    place = table.column_names.index(name)
    pq.write_table(table.set_column(place, name, pa.array(["x"] * len(table))), path)


def test_columns_of_a_wrong_type_are_refused_in_one_line(tmp_path):
    write_dataset(tmp_path, [make_record(0), make_record(1)])
    retyped(tmp_path / "shards" / "part-00000.parquet", "scalars")
    with pytest.raises(UserError, match="have different columns") as caught:
        RootDataset.load(tmp_path)
    assert "\n" not in str(caught.value)
    retyped(tmp_path / "shards" / "part-00001.parquet", "scalars")
    with pytest.raises(UserError, match="scalars is a column of string"):
        RootDataset.load(tmp_path)


def write_named(folder, records, target="t"):
    """A data set of one unit, whose shard says where it is from."""
    unit = Unit("a", "done", "part-00000.parquet", len(records), 1.0)
    write_dataset(folder, records, units=[unit], target_fingerprint=target)
    path, manifest = folder / "shards" / unit.shard, Manifest.load(folder)
    write_table(path, to_table(records), manifest.origin(unit))
    seal(folder)
    return path


def test_every_flipped_bit_of_a_shard_is_refused(tmp_path):
    """Read as parquet, a part of them gives other values instead."""
    path = write_named(tmp_path, [make_record(0), make_record(1)])
    assert len(RootDataset.load(tmp_path)) == 2
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 200)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="its checksum differs"):
            RootDataset.load(tmp_path)
    path.write_bytes(whole)
    assert len(RootDataset.load(tmp_path)) == 2


@pytest.mark.parametrize("name", ["unit", "target", "draft"])
def test_a_shard_of_another_set_is_refused_by_name(tmp_path, name):
    """Also where the checksums were made to fit it."""
    records = [make_record(0), make_record(1)]
    path, manifest = write_named(tmp_path, records), Manifest.load(tmp_path)
    write_table(path, to_table(records), manifest.origin(manifest.units[0]) | {name: "other"})
    with pytest.raises(UserError, match="its checksum differs"):
        RootDataset.load(tmp_path)
    seal(tmp_path)
    with pytest.raises(UserError, match=rf"of another data set \({name} is 'other' there and '.*' in the manifest\)"):
        RootDataset.load(tmp_path)


def test_a_set_of_the_earlier_schema_loads_and_keeps_its_identity(tmp_path):
    """Runs and checkpoints name it by the hash that it had."""
    write_dataset(tmp_path, [make_record(index) for index in range(4)], schema=1)
    path = tmp_path / "manifest.json"
    old = json.loads(path.read_text())
    del old["models"]
    for unit in old["units"]:
        del unit["checksum"]
    path.write_text(json.dumps(old))
    with pytest.warns(UserWarning, match="2 shards have no checksum"):
        dataset = RootDataset.load(tmp_path)
    assert len(dataset) == 4
    assert dataset.manifest.hash() == content_hash(old)


def test_one_shard_is_not_counted_twice(tmp_path):
    unit = Unit("a", "done", "part-00000.parquet", 1, 1.0)
    write_dataset(tmp_path, [make_record(0), make_record(1)], units=[unit, dataclasses.replace(unit, id="b")])
    with pytest.raises(UserError, match="name one shard twice"):
        RootDataset.load(tmp_path)


def test_a_set_of_drafted_actions_alone_keeps_its_schema_and_its_identity(tmp_path):
    write_dataset(tmp_path, [make_record(index) for index in range(4)], schema=2)
    old = json.loads((tmp_path / "manifest.json").read_text())
    del old["models"]
    (tmp_path / "manifest.json").write_text(json.dumps(old))
    loaded = RootDataset.load(tmp_path).manifest
    assert loaded.schema == 2
    assert loaded.hash() == content_hash(old)
    assert loaded.space.copies == ()


def test_copies_are_part_of_a_manifest(tmp_path):
    write_dataset(tmp_path, [make_record(0), make_record(1)], action_space=(2, 1, 2, (4,), ((2, 0, 2),), ()))
    loaded = Manifest.load(tmp_path)
    assert [str(action) for action in loaded.space.copies] == ["copy 4", "copy 4 | (2, 0, 2)"]
