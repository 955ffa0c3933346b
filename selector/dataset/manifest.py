"""The manifest of a data set: what was generated, from what, and how far it got.

While a run goes on, the units that end are lines of a journal beside `manifest.json`, since rewriting a manifest of
25,000 units after each of them would take hours. `Manifest.load` reads both as one; a finished set has no journal.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from selector.artifacts.loading import Count, complaint, load
from selector.artifacts.origin import content_hash
from selector.artifacts.writing import write_json
from selector.config import Limits, check_draft_warp
from selector.errors import UserError
from selector.pair_names import PairNames
from selector.trees.expansion import ActionSpace

SCHEMA = 4
WITHOUT_MODELS = 3  # the schema before: it names the models as the configuration does
DRAFTED_ONLY = 2  # before that: its actions copy nothing
WITHOUT_CHECKSUMS = 1  # and before that: its shards say neither checksum nor unit
FILE_NAME = "manifest.json"
JOURNAL = "ended_units.jsonl"
REMEDY = "make the data set with `ddte generate`"


@dataclass
class Unit:
    """One piece of work: its rows lie in `shards/<shard>`; `error` says why a failed one has none.

    `checksum` is the SHA-256 of the shard's file; empty where an earlier version made it.
    """

    id: str
    status: Literal["pending", "done", "failed"] = "pending"
    shard: str = ""
    rows: Count = 0
    seconds: float = 0.0
    error: str = ""
    checksum: str = ""


UNIT: TypeAdapter[Unit] = TypeAdapter(Unit)


@dataclass
class Manifest:
    """`manifest.json` of a data set folder.

    Attributes:
        config: the resolved configuration of the run that generates the set.
        action_space: what `ActionSpace` takes: `(K, L1, L2)`, the limits of the labelled actions, and the copies.
        verifiers: names of the labelled verifiers.
        scalars: names of the scalar features, in the order of the rows' `scalars`.
        hidden_sizes: `{"target": d_p, "draft": d_q}`.
        target_fingerprint, draft_fingerprint: identify the two models.
        models: their names, commits and licences.
        draft_warp: `same`, or the draft's own `(temperature, top-p)`.
        complete: true once no unit is pending.
    """

    config: dict[str, Any]
    action_space: Limits
    verifiers: list[str]
    scalars: list[str]
    hidden_sizes: dict[str, int]
    target_fingerprint: str
    draft_fingerprint: str
    models: PairNames = field(default_factory=PairNames)
    dtype: str = "float32"
    draft_warp: Literal["same"] | tuple[float, float] = "same"
    seed: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    git_revision: str = ""
    units: list[Unit] = field(default_factory=list)
    complete: bool = False
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        ActionSpace(*self.action_space)
        check_draft_warp(self.draft_warp)

    @property
    def space(self) -> ActionSpace:
        return ActionSpace(*self.action_space)

    @property
    def shards(self) -> dict[str, Unit]:
        """The unit whose rows each shard holds, in the units' order; failed and pending units have none."""
        return {unit.shard: unit for unit in self.units if unit.status == "done" and unit.rows}

    def origin(self, unit: Unit) -> dict[str, str]:
        """What the shard of `unit` says of itself."""
        return {"unit": unit.id, "target": self.target_fingerprint, "draft": self.draft_fingerprint}

    def hash(self) -> str:
        """Identity of the data set: SHA-256 of the manifest's content, the same in every version that reads it."""
        content = asdict(self)
        if self.schema <= WITHOUT_MODELS:
            del content["models"]
        if self.schema == WITHOUT_CHECKSUMS:
            content["units"] = [{key: unit[key] for key in unit if key != "checksum"} for unit in content["units"]]
        return content_hash(content)

    def require_complete(self) -> None:
        """A UserError if the data set is not complete or holds nothing."""
        if not self.complete:
            pending = sum(unit.status == "pending" for unit in self.units)
            raise UserError(
                f"complete is false ({pending} units are pending): finish the data set with `ddte generate`."
            )
        if not self.shards:
            raise UserError("units have no rows: generate the data set again with longer or more trajectories.")
        if len(self.shards) < sum(unit.status == "done" and unit.rows > 0 for unit in self.units):
            raise UserError("units name one shard twice: generate the data set again.")
        if any(self.hidden_sizes.get(name, 0) < 1 for name in ("target", "draft")):
            raise UserError(f"hidden_sizes is {self.hidden_sizes}: it must name the sizes of target and draft.")
        if not self.verifiers:
            raise UserError("verifiers is empty: generate the data set again with one verifier or more.")

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
        schemas = (SCHEMA, WITHOUT_MODELS, DRAFTED_ONLY, WITHOUT_CHECKSUMS)
        manifest = load(cls, folder / FILE_NAME, schemas, REMEDY, newer={"models": {}})
        if manifest.schema <= WITHOUT_MODELS:
            manifest.models = PairNames.of(manifest.config.get("pair"), manifest.dtype)
        if (folder / JOURNAL).exists():
            manifest._replay(folder / JOURNAL)
        return manifest

    def _replay(self, path: Path) -> None:
        """Take over the journal's units. A last line without its end was being written when the run was killed."""
        places = {unit.id: place for place, unit in enumerate(self.units)}
        try:
            for line in path.read_text("utf-8").split("\n")[:-1]:
                unit = UNIT.validate_json(line, strict=True, extra="forbid")
                self.units[places[unit.id]] = unit
        except ValidationError as error:
            raise UserError(f"journal '{path}' is damaged ({complaint(error)}): {REMEDY}.") from None
        except KeyError as error:
            raise UserError(f"journal '{path}' is damaged (unit {error} is unknown): {REMEDY}.") from None
