"""A run folder: what it trains on what, and what is there already.

run.json                 resolved configuration, data hash, versions, git revision, seed
profile.json             the latency profile
splits.json              prompt ids of training, validation and test
<verifier>/csv/          learning curves, one `version_i/metrics.csv` for each start of the run
<verifier>/last.ckpt     Lightning's state after the last epoch; best.ckpt after the best one
<verifier>/selector/     the trained selector in the export format, once training has ended
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from selector.artifacts import as_json, content_hash, git_revision, read_json, versions, write_json
from selector.config import TrainConfig
from selector.dataset.manifest import Manifest
from selector.errors import UserError
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint, refuse_occupied
from selector.training.splits import Splits

SCHEMA = 1
REMEDY = "train with `ddte train`"


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    def verifier_folder(self, verifier: str) -> Path:
        return self.path / verifier

    def selector_folder(self, verifier: str) -> Path:
        return self.path / verifier / "selector"

    @property
    def info(self) -> dict[str, Any]:
        """`run.json`; a UserError if this is no run folder."""
        info = read_json(self.path / "run.json", REMEDY)
        if not isinstance(info, dict) or info.get("schema") != SCHEMA:
            raise UserError(f"file '{self.path / 'run.json'}' is not of schema {SCHEMA}: {REMEDY} again.")
        config = info.get("config")
        if not isinstance(config, dict) or not _are_texts(config.get("verifiers")):
            raise UserError(f"config of '{self.path / 'run.json'}' names no verifiers: {REMEDY} again.")
        return info

    @property
    def verifiers(self) -> list[str]:
        return list(self.info["config"]["verifiers"])

    @property
    def splits(self) -> Splits:
        """The prompt ids of the three parts."""
        parts = read_json(self.path / "splits.json", REMEDY)
        names = [entry.name for entry in fields(Splits)]
        if not isinstance(parts, dict) or set(parts) != set(names):
            wanted = ", ".join(names)
            raise UserError(f"file '{self.path / 'splits.json'}' must have exactly {wanted}: {REMEDY} again.")
        for name in names:
            if not _are_texts(parts[name]):
                raise UserError(f"{name} of '{self.path / 'splits.json'}' is no list of prompt ids: {REMEDY} again.")
        return Splits(**parts)

    @property
    def profile(self) -> LatencyProfile:
        return LatencyProfile.load(self.path / "profile.json")

    def is_done(self, verifier: str) -> bool:
        return (self.selector_folder(verifier) / "config.json").exists()

    def selector(self, verifier: str) -> SelectorCheckpoint:
        """The trained selector; a UserError if training has not ended."""
        if verifier not in self.verifiers:
            known = ", ".join(self.verifiers)
            raise UserError(f"verifier is {verifier!r}: run '{self.path}' has selectors for {known}.")
        if not self.is_done(verifier):
            raise UserError(f"training of {verifier} in '{self.path}' has not ended: finish it with `ddte train`.")
        return SelectorCheckpoint.load(self.selector_folder(verifier))


def open_run(path: Path, config: TrainConfig, manifest: Manifest, profile: LatencyProfile, splits: Splits) -> RunFolder:
    """Start a run folder, or go on with one of the very same run; a UserError names the first difference."""
    run = RunFolder(path)
    info: dict[str, Any] = {
        "schema": SCHEMA,
        "config": as_json(config),
        "data_hash": manifest.hash(),
        "profile_hash": content_hash(asdict(profile)),
    }
    if (path / "run.json").exists():
        _refuse_other_run(path, run.info, info)
        return run
    refuse_occupied(path)
    path.mkdir(parents=True, exist_ok=True)
    profile.save(path / "profile.json")
    write_json(path / "splits.json", asdict(splits))
    origin = {"data_config": manifest.config, "versions": versions(), "git_revision": git_revision()}
    write_json(path / "run.json", info | origin)
    return run


def _refuse_other_run(path: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    for left, right in ((there["config"], here["config"]), (there, here)):
        for name, value in right.items():
            if left.get(name) != value:
                raise UserError(
                    f"run folder '{path}' holds another run ({name} is {left.get(name)!r} there and {value!r} here): "
                    "delete it, or give another folder."
                )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
