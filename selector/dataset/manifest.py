"""The manifest of a data set: what was generated, from what, and how far it got.

While a run goes on, the units that end are lines of a journal beside `manifest.json`, since rewriting a manifest of
25,000 units after each of them would take hours. `Manifest.load` reads both as one; a finished set has no journal.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from selector.artifacts import checked_fields, content_hash, read_json, write_json
from selector.config import check_draft_warp
from selector.errors import UserError
from selector.field_checks import check_dict, check_texts, check_whole, checked_space
from selector.trees.expansion import ActionSpace

SCHEMA = 1
STATUSES = ("pending", "done", "failed")
FILE_NAME = "manifest.json"
JOURNAL = "ended_units.jsonl"
REMEDY = "make the data set with `ddte generate`"


@dataclass
class Unit:
    """One piece of work: its rows lie in `shards/<shard>`; `error` says why a failed one has none."""

    id: str
    status: Literal["pending", "done", "failed"] = "pending"
    shard: str = ""
    rows: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass
class Manifest:
    """`manifest.json` of a data set folder.

    Attributes:
        config: the resolved configuration of the run that generates the set.
        action_space: `(K, L1, L2)`, the limits of the labelled actions.
        verifiers: names of the labelled verifiers.
        scalars: names of the scalar features, in the order of the rows' `scalars`.
        hidden_sizes: `{"target": d_p, "draft": d_q}`.
        target_fingerprint, draft_fingerprint: identify the two models.
        draft_warp: `same`, or the draft's own `(temperature, top-p)`.
        complete: true once no unit is pending.
    """

    config: dict[str, Any]
    action_space: tuple[int, int, int]
    verifiers: list[str]
    scalars: list[str]
    hidden_sizes: dict[str, int]
    target_fingerprint: str
    draft_fingerprint: str
    dtype: str = "float32"
    draft_warp: Any = "same"
    seed: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    git_revision: str = ""
    units: list[Unit] = field(default_factory=list)
    complete: bool = False
    schema: int = SCHEMA

    @property
    def space(self) -> ActionSpace:
        return ActionSpace(*self.action_space)

    def hash(self) -> str:
        """Identity of the data set: SHA-256 of the manifest's content."""
        return content_hash(asdict(self))

    def shard_rows(self) -> dict[str, int]:
        """Rows that each shard must hold, in the units' order; failed and pending units have none."""
        rows: dict[str, int] = {}
        for unit in self.units:
            if unit.status == "done" and unit.rows:
                rows[unit.shard] = rows.get(unit.shard, 0) + unit.rows
        return rows

    def save(self, folder: Path) -> None:
        """Write `manifest.json` atomically; the journal is then part of it and goes."""
        write_json(folder / FILE_NAME, asdict(self))
        (folder / JOURNAL).unlink(missing_ok=True)

    def record(self, place: int, unit: Unit, folder: Path) -> None:
        """Unit number `place` has ended: say so here and in the journal."""
        self.units[place] = unit
        with (folder / JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(asdict(unit)) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read `folder/manifest.json` and its journal; a UserError names the field that does not fit."""
        path = folder / FILE_NAME
        manifest = cls.from_dict(read_json(path, REMEDY), path)
        if (folder / JOURNAL).exists():
            manifest._replay(folder / JOURNAL)
        return manifest

    def _replay(self, path: Path) -> None:
        """Take over the journal's units. A last line without its end was being written when the run was killed."""
        places = {unit.id: place for place, unit in enumerate(self.units)}
        try:
            for line in path.read_text("utf-8").split("\n")[:-1]:
                unit = Unit(**json.loads(line))
                _check_unit(unit)
                self.units[places[unit.id]] = unit
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"journal '{path}' is damaged ({str(error).rstrip('.')}): {REMEDY}.") from None

    @classmethod
    def from_dict(cls, data: Any, source: Path | str = FILE_NAME) -> Manifest:
        """Inverse of `dataclasses.asdict`, also after JSON."""
        values = checked_fields(cls, data, SCHEMA, source, REMEDY)
        try:
            values["units"] = [Unit(**unit) for unit in data["units"]]
            values["action_space"] = checked_space("action_space", data["action_space"])
            manifest = cls(**values)
            _check(manifest)
        except (TypeError, ValueError) as error:
            raise UserError(f"manifest '{source}' is damaged ({str(error).rstrip('.')}): {REMEDY}.") from None
        return manifest


def _check(manifest: Manifest) -> None:
    """A ValueError names the first field of a kind that it cannot have."""
    check_dict("config", manifest.config)
    check_texts("verifiers", manifest.verifiers)
    check_texts("scalars", manifest.scalars)
    check_dict("hidden_sizes", manifest.hidden_sizes)
    check_draft_warp(manifest.draft_warp)
    for unit in manifest.units:
        _check_unit(unit)


def _check_unit(unit: Unit) -> None:
    check_whole(f"rows of unit {unit.id!r}", unit.rows, 0)
    if not isinstance(unit.shard, str) or unit.status not in STATUSES:
        raise ValueError(f"unit {unit.id!r} has shard {unit.shard!r} and status {unit.status!r}")
