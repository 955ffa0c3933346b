"""A run folder: what it trains on what, and what is there already.

run.json                 resolved configuration, models, data hash, versions, git revision, seed
profile.json             the latency profile
splits.json              prompt ids of training, validation and test
<verifier>/csv/          learning curves, one `version_i/metrics.csv` for each start of the run
<verifier>/last.ckpt     Lightning's state after the last epoch; best.ckpt after the best one
<verifier>/selector/     the trained selector in the export format, once training has ended
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from selector.artifacts.claims import claim_folder, refuse_other_run
from selector.artifacts.loading import load
from selector.artifacts.origin import git_revision, versions
from selector.artifacts.writing import as_json, write_json
from selector.config import TrainConfig
from selector.dataset.manifest import Manifest
from selector.errors import UserError
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.pair_names import PairNames
from selector.training.splits import Splits

SCHEMA = 2
WITHOUT_MODELS = 1  # the schema before
REMEDY = "train with `ddte train`"


@dataclass(frozen=True)
class RunInfo:
    """`run.json`; a setting that is newer than the run has its default in `config`."""

    config: TrainConfig
    data_hash: str
    profile_hash: str
    data_config: dict[str, Any]
    versions: dict[str, str]
    git_revision: str
    models: PairNames = field(default_factory=PairNames)
    schema: int = SCHEMA


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    def verifier_folder(self, verifier: str) -> Path:
        return self.path / verifier

    def selector_folder(self, verifier: str) -> Path:
        return self.path / verifier / "selector"

    @property
    def info(self) -> RunInfo:
        """A UserError if this is no run folder."""
        return load(RunInfo, self.path / "run.json", (SCHEMA, WITHOUT_MODELS), REMEDY, newer={"models": {}})

    @property
    def verifiers(self) -> list[str]:
        return list(self.info.config.verifiers)

    @property
    def splits(self) -> Splits:
        """The prompt ids of the three parts."""
        return load(Splits, self.path / "splits.json", (), REMEDY)

    @property
    def profile(self) -> LatencyProfile:
        return LatencyProfile.load(self.path / "profile.json")

    def check_data(self, manifest: Manifest) -> None:
        """Refuse another data set than that of training."""
        if manifest.hash() != self.info.data_hash:
            raise UserError(
                f"data is of another run (hash {manifest.hash()[:16]}, and '{self.path}' was trained on "
                f"{self.info.data_hash[:16]}): give the data set of the run, or another one as test data."
            )

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
    hashes = manifest.hash(), profile.identity
    info = RunInfo(config, *hashes, manifest.config, versions(), git_revision(), manifest.models)
    if claim_folder("out", path, "run.json"):
        stored = run.info
        refuse_other_run("out", path, as_json(stored.config), config)
        refuse_other_run("out", path, vars(stored), {"data_hash": info.data_hash, "profile_hash": info.profile_hash})
    else:
        write_json(path / "run.json", as_json(info))
    if not (path / "profile.json").exists():  # the run was killed right after its start
        profile.save(path / "profile.json")
    if not (path / "splits.json").exists():
        write_json(path / "splits.json", asdict(splits))
    return run
