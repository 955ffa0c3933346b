"""The manifest's journal: units that end are read back, whatever moment the run was killed at."""

import json

import pytest

from selector.artifacts.origin import content_hash
from selector.dataset.manifest import FILE_NAME, JOURNAL, SCHEMA, Manifest, Unit
from selector.errors import UserError
from selector.pair_names import EMBEDDED, ModelName, PairNames


def manifest_of(count: int) -> Manifest:
    return Manifest(
        config={}, action_space=(2, 1, 2), verifiers=["nss"], scalars=["a"], hidden_sizes={"target": 6, "draft": 4},
        target_fingerprint="t", draft_fingerprint="d", units=[Unit(f"unit-{place}") for place in range(count)],
    )  # fmt: skip


def done(place: int) -> Unit:
    return Unit(f"unit-{place}", "done", f"part-{place:05d}.parquet", 8, 1.0)


def test_the_journal_is_read_over_the_manifest(tmp_path):
    manifest = manifest_of(4)
    manifest.save(tmp_path)
    written = (tmp_path / FILE_NAME).read_bytes()
    manifest.record(2, Unit("unit-2", "failed", error="out of memory\n"), tmp_path)
    manifest.record(0, done(0), tmp_path)
    manifest.record(2, done(2), tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == written
    loaded = Manifest.load(tmp_path)
    assert loaded == manifest
    assert [unit.status for unit in loaded.units] == ["done", "pending", "done", "pending"]
    loaded.save(tmp_path)
    assert not (tmp_path / JOURNAL).exists()
    assert Manifest.load(tmp_path) == manifest


def test_every_cut_of_the_journal_loses_at_most_its_last_unit(tmp_path):
    manifest = manifest_of(3)
    manifest.save(tmp_path)
    for place in range(3):
        manifest.record(place, done(place), tmp_path)
    journal = tmp_path / JOURNAL
    whole = journal.read_bytes()
    for size in range(len(whole) + 1):
        journal.write_bytes(whole[:size])
        states = [unit.status for unit in Manifest.load(tmp_path).units]
        ended = whole[:size].count(b"\n")
        assert states == ["done"] * ended + ["pending"] * (3 - ended)


def test_a_journal_that_outlived_its_manifest_changes_nothing(tmp_path):
    """Killed between writing the manifest and removing the journal."""
    manifest = manifest_of(2)
    manifest.save(tmp_path)
    manifest.record(1, done(1), tmp_path)
    journal = (tmp_path / JOURNAL).read_bytes()
    manifest.complete = True
    manifest.save(tmp_path)
    (tmp_path / JOURNAL).write_bytes(journal)
    assert Manifest.load(tmp_path) == manifest


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"id": "unit-9"}', '{"id": "unit-0", "rows": -1}', '{"id": "unit-0", "x": 1}']
)
def test_a_damaged_journal_is_refused(tmp_path, line):
    manifest_of(1).save(tmp_path)
    (tmp_path / JOURNAL).write_text(line + "\n")
    with pytest.raises(UserError, match=rf"journal .*{JOURNAL}' is damaged"):
        Manifest.load(tmp_path)


def test_a_line_of_the_journal(tmp_path):
    """It does not grow with the number of units, as a rewritten manifest would."""
    manifest = manifest_of(1000)
    manifest.save(tmp_path)
    manifest.record(7, done(7), tmp_path)
    (line,) = (tmp_path / JOURNAL).read_text().splitlines()
    assert json.loads(line) == {
        "id": "unit-7", "status": "done", "shard": "part-00007.parquet", "rows": 8, "seconds": 1.0, "error": "",
        "checksum": "",
    }  # fmt: skip


def test_a_manifest_of_the_schema_before_keeps_its_identity_and_names_what_its_configuration_does(tmp_path):
    manifest_of(1).save(tmp_path)
    old = json.loads((tmp_path / FILE_NAME).read_text()) | {"schema": 3, "dtype": "bfloat16"}
    old["config"] = {"pair": {"target": "embedded", "draft": "someone/draft", "dtype": "auto", "draft_revision": "v1"}}
    del old["models"]
    (tmp_path / FILE_NAME).write_text(json.dumps(old))
    loaded = Manifest.load(tmp_path)
    assert loaded.hash() == content_hash(old)
    assert loaded.models == PairNames(EMBEDDED, ModelName("someone/draft", "v1"), dtype="bfloat16")
    (tmp_path / FILE_NAME).write_text(json.dumps(old | {"schema": SCHEMA}))
    with pytest.raises(UserError, match=r"models of .* is missing"):
        Manifest.load(tmp_path)
