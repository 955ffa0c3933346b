"""`ddte generate --check`: whether a data set holds what its manifest says and labels that can be meant."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from selector.artifacts.loading import read_json
from selector.dataset.dataset import RootDataset
from selector.dataset.manifest import FILE_NAME, REMEDY, SCHEMA, Unit
from selector.errors import UserError
from selector.trees.expansion import ActionSpace, Expansion

SECTIONS = ("pair", "action_space", "generate")  # of the configuration: what a data set depends on
ROUNDING = 2.0**-10  # two neighbours in float16 differ by at most this share of them


def check_data_set(folder: Path | str, console: Console | None = None) -> None:
    """Print tables of what is there. Raises UserError at the first thing that cannot be.

    Beside what `RootDataset.load` refuses: a manifest that does not count all that is in the shards, a root that comes
    twice, and a label that falls with depth.
    """
    folder, console = Path(folder), console or Console()
    data = RootDataset.load(folder)
    check_manifest_keys(folder / FILE_NAME)
    check_counted(data, folder / "shards")
    check_twice(data)
    for verifier, labels in data.efficiency.items():
        check_monotone(verifier, labels, data.manifest.space)
    console.print(headline(data, folder), soft_wrap=True)
    console.print(roots_table(data))
    console.print(efficiency_table(data))
    failed = Counter(unit.error for unit in data.manifest.units if unit.status == "failed")
    for reason, count in failed.most_common():
        console.print(f"{count} trajectories failed: {reason}", markup=False)


def check_manifest_keys(path: Path) -> None:
    """Sections and units are whole: what reads a manifest fills in defaults, which would hide a cut by hand."""
    manifest = read_json(path, REMEDY)
    for section in SECTIONS:
        if not isinstance(manifest["config"].get(section), dict):
            raise UserError(f"config.{section} of {str(path)!r} is missing: {REMEDY}.")
    names = [entry.name for entry in fields(Unit) if manifest["schema"] == SCHEMA or entry.name != "checksum"]
    for place, unit in enumerate(manifest["units"]):
        missing = next((name for name in names if name not in unit), None)
        if missing is not None:
            raise UserError(f"{missing} of unit {place} in {str(path)!r} is missing: {REMEDY}.")


def check_counted(data: RootDataset, shards: Path) -> None:
    """All units have ended, and the manifest knows every shard and every verifier's column."""
    manifest = data.manifest
    pending = sum(unit.status == "pending" for unit in manifest.units)
    if pending:
        raise UserError(f"complete is true, and {pending} units are pending: finish the data set with `ddte generate`.")
    counted = manifest.shards
    for path in sorted(shards.glob("*.parquet")):
        if path.name not in counted and (rows := _count_rows(path)):
            raise UserError(f"shard {str(path)!r} holds {rows} roots that the manifest does not count: {REMEDY}.")
    for name in pq.read_schema(shards / next(iter(counted))).names:
        verifier = name.removeprefix("efficiency_")
        if verifier != name and verifier not in manifest.verifiers:
            raise UserError(f"verifiers is {manifest.verifiers}, and the shards have labels of {verifier!r}: {REMEDY}.")


def _count_rows(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return 0  # no parquet file, or one cut off: no run counts it


def check_twice(data: RootDataset) -> None:
    """A root is known by its prompt, its setting and its position."""
    settings, positions = data.settings.tolist(), data.position.tolist()
    seen: dict[tuple[str, float, float, int], int] = {}
    for row, (prompt, setting, position) in enumerate(zip(data.prompt_ids, settings, positions, strict=True)):
        first = seen.setdefault((prompt, *setting, position), row)
        if first != row:
            raise UserError(
                f"row {row} is row {first} once more (prompt {prompt!r}, temperature {setting[0]:.3g}, top-p "
                f"{setting[1]:.3g}, position {position}): generate or merge the data set again."
            )


def check_monotone(verifier: str, labels: Tensor, space: ActionSpace) -> None:
    """A deeper tree never gives fewer tokens: each level adds a share that is 0 or more, in every estimate.

    So it holds row by row, but for the rounding to float16.
    """
    for short, deep in deeper(space):
        fall = labels[..., short] - labels[..., deep]
        bad = (fall > ROUNDING * labels[..., short]).nonzero()
        if len(bad):
            row, half = bad[0].tolist()
            values = f"{labels[row, half, short]:.4f} for {space.expansions[short]} and {labels[row, half, deep]:.4f}"
            raise UserError(
                f"efficiency_{verifier} of row {row} falls with depth ({values} for {space.expansions[deep]}): "
                "generate the data set again."
            )


def deeper(space: ActionSpace) -> list[tuple[int, int]]:
    """Each action after the one whose branches, or whose chain, are shorter by one token."""
    return [
        (space.index(Expansion(branches, trunk, length - 1)), action)
        for action, (branches, trunk, length) in enumerate(space.drafted)
        if length
    ]


def headline(data: RootDataset, folder: Path) -> str:
    """How much there is."""
    size = sum(path.stat().st_size for path in (folder / "shards" / name for name in data.manifest.shards))
    failed = sum(unit.status == "failed" for unit in data.manifest.units)
    return (
        f"{folder}: {len(data)} roots of {len(data.manifest.units) - failed} trajectories, {failed} failed, "
        f"{size / len(data) / 1000:.1f} kB a root"
    )


def roots_table(data: RootDataset) -> Table:
    """How many roots each task and setting has."""
    settings = [f"{temperature:.3g}, {top_p:.3g}" for temperature, top_p in data.settings.tolist()]
    tasks, counts = sorted(set(data.tasks)), Counter(zip(data.tasks, settings, strict=True))
    table = _table("temperature, top-p", [*tasks, "all"], "Roots")
    for setting in sorted(set(settings)):
        row = [counts[task, setting] for task in tasks]
        table.add_row(setting, *map(str, [*row, sum(row)]))
    return table


def efficiency_table(data: RootDataset) -> Table:
    """Mean tokens a step of each verifier by task, with its best tree of the whole set."""
    tasks = sorted(set(data.tasks))
    table = _table("verifier", ["tree", *tasks, "all"], "Tokens a step by the labels, with the best tree of all roots")
    for verifier in data.efficiency:
        labels = data.mean_efficiency(verifier)
        action = int(labels.mean(0).argmax())
        values = labels[:, action]
        means = [float(values[torch.tensor([name == task for name in data.tasks])].mean()) for task in tasks]
        tree = str(data.manifest.space.expansions[action])
        table.add_row(verifier, tree, *(f"{mean:.2f}" for mean in [*means, float(values.mean())]))
    return table


def _table(first: str, columns: list[str], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=column == "tree")
    return table
