"""`ddte generate --merge`: data sets of several machines become one, if they belong together."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console

from data_gen.data_card import Contents, card_section, setting_name, write_data_card
from selector.artifacts.claims import claim_folder, sole_writer
from selector.artifacts.writing import atomic_write
from selector.dataset.manifest import SCHEMA, Manifest, Unit
from selector.dataset.parquet import checksum, is_whole
from selector.errors import UserError

SAME = (
    "target_fingerprint", "draft_fingerprint", "action_space", "verifiers", "scalars", "hidden_sizes", "dtype",
    "draft_warp",
)  # fmt: skip
SAME_SETTINGS = ("max_new_tokens", "root_every", "num_samples", "chat_template")


def merge(sources: Sequence[Path], folder: Path, console: Console | None = None) -> Manifest:
    """Write the units of all `sources`, in their order, as the new data set `folder`; returns its manifest.

    Shards are hard links where the disk can, else copies. `prompt_index` stays that of each source. Raises UserError
    for sets that do not belong together, that are incomplete or lack a shard, and for a unit that comes twice; the
    folder is then not there.
    """
    console = console or Console()
    if len(sources) < 2:
        raise UserError(f"merge is {[str(source) for source in sources]}: name two data sets or more.")
    with sole_writer("out", folder):
        claim_folder("out", folder)
        return _merge(sources, folder, console)


def _merge(sources: Sequence[Path], folder: Path, console: Console) -> Manifest:
    manifests = [Manifest.load(source) for source in sources]
    _check_sources(sources, manifests)
    merged = _merged(sources, manifests)
    with atomic_write(folder) as building:
        (building / "shards").mkdir(parents=True)
        _take_shards(sources, manifests, merged, building)
        merged.save(building)
        write_data_card(merged, _contents(sources, manifests, building), building)
    rows = sum(unit.rows for unit in merged.units)
    console.print(f"{folder}: {rows} roots of {len(merged.units)} trajectories from {len(sources)} data sets.")
    return merged


def _check_sources(sources: Sequence[Path], manifests: Sequence[Manifest]) -> None:
    """Complete, with all shards, alike, and without a common unit."""
    seen: dict[str, Path] = {}
    for source, manifest in zip(sources, manifests, strict=True):
        try:
            manifest.require_complete()
        except UserError as error:
            raise UserError(f"{str(source)!r}: {error}") from None
        for name, unit in manifest.shards.items():
            if not is_whole(source / "shards" / name, unit):
                raise UserError(f"shard {str(source / 'shards' / name)!r} is missing or damaged: generate it again.")
        for name, first, other in _traits(manifests[0], manifest):
            if first != other:
                raise UserError(
                    f"{name} is {first!r} in {str(sources[0])!r} and {other!r} in {str(source)!r}: "
                    "only data sets of one kind can be merged."
                )
        for unit in manifest.units:
            if unit.id in seen:
                raise UserError(
                    f"unit {unit.id} is in {str(seen[unit.id])!r} and in {str(source)!r}: take one of them."
                )
            seen[unit.id] = source


def _traits(first: Manifest, other: Manifest) -> list[tuple[str, Any, Any]]:
    """What two sets must share: name, and both values."""
    traits = [(name, getattr(first, name), getattr(other, name)) for name in SAME]
    settings = [manifest.config.get("generate", {}) for manifest in (first, other)]
    return traits + [(f"generate.{name}", *(values.get(name) for values in settings)) for name in SAME_SETTINGS]


def _merged(sources: Sequence[Path], manifests: Sequence[Manifest]) -> Manifest:
    """The first manifest with everybody's units, shards renumbered, prompts and settings named together."""
    units: list[Unit] = []
    for manifest in manifests:
        for unit in manifest.units:
            shard = f"part-{len(units):05d}.parquet" if unit.shard else ""
            units.append(replace(unit, shard=shard))
    config = dict(manifests[0].config)
    config["generate"] = dict(config.get("generate", {}))
    for name in ("prompts", "settings"):
        lists = [manifest.config.get("generate", {}).get(name, []) for manifest in manifests]
        together: list[Any] = []
        for entry in (entry for values in lists for entry in values):
            if entry not in together:
                together.append(entry)
        config["generate"][name] = together
    return replace(manifests[0], config=config, units=units, complete=True, schema=SCHEMA)


def _take_shards(sources: Sequence[Path], manifests: Sequence[Manifest], merged: Manifest, building: Path) -> None:
    old = [
        (source / "shards" / unit.shard if unit.shard else None)
        for source, manifest in zip(sources, manifests, strict=True)
        for unit in manifest.units
    ]
    for path, unit in zip(old, merged.units, strict=True):
        if path is None:
            continue
        target = building / "shards" / unit.shard
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target)
        unit.checksum = unit.checksum or checksum(target.read_bytes())  # a source of an earlier version has none


def _contents(sources: Sequence[Path], manifests: Sequence[Manifest], building: Path) -> Contents:
    """Counts from the rows; prompts and failures from the cards of the sources."""
    tasks, settings = Counter[str](), Counter[str]()
    for shard in sorted((building / "shards").iterdir()):
        for row in pq.read_table(shard, columns=["task", "temperature", "top_p"]).to_pylist():
            tasks[row["task"]] += 1
            settings[setting_name(row["temperature"], row["top_p"])] += 1
    cards = [path.read_text("utf-8") if (path := source / "README.md").is_file() else "" for source in sources]
    prompts = [line for card in cards for line in card_section(card, "Prompts")]
    failed = [line for card in cards for line in card_section(card, "Failed trajectories")]
    return Contents(tasks, settings, list(dict.fromkeys(prompts)), failed)
