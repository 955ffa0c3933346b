"""Shards and checksums of data sets that tests make or spoil by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from selector.dataset.manifest import Manifest
from selector.dataset.parquet import checksum
from selector.dataset.records import RootRecord, to_table, write_table


def write_shard(path: Path, records: Sequence[RootRecord]) -> None:
    """A shard without a unit's name, as an earlier version wrote it."""
    write_table(path, to_table(records), {})


def seal(folder: Path) -> None:
    """Write the checksums of the shards that are there into the manifest."""
    manifest = Manifest.load(folder)
    manifest.units = [
        replace(unit, checksum=checksum((folder / "shards" / unit.shard).read_bytes())) if unit.shard else unit
        for unit in manifest.units
    ]
    manifest.save(folder)
