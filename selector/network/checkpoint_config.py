"""`config.json` of an exported selector: what it was trained for, on, and how."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from selector.artifacts.loading import parse, read_json
from selector.config import check_draft_warp
from selector.errors import UserError
from selector.features import DRAFTED_SCALARS, SCALARS
from selector.latency import LatencyProfile
from selector.network.network import NetworkShape
from selector.pair_names import PairNames
from selector.trees.expansion import ActionSpace, Expansion

SCHEMA = 5
NAMES_ALONE = 4  # the schema before: of the models it has what a configuration names
DRAFTED_ONLY = 3  # before that: its actions copy nothing
WITHOUT_MODELS = 2  # and before that: it knows the models by their fingerprints alone
REMEDY = "export the checkpoint again with `ddte export`"
Head = Literal["policy", "regressor"]
HEADS: tuple[Head, ...] = ("policy", "regressor")


@dataclass(frozen=True)
class CheckpointConfig:
    """`config.json`.

    Attributes:
        verifier: the verifier whose efficiency was learned.
        shape: the network's shape.
        scalars: names of the scalar features, in order.
        default_head: the head with the higher throughput on validation prompts.
        target_fingerprint, draft_fingerprint: the pair that it was trained for.
        draft_warp: `same` as the target, or the draft's own (temperature, top-p).
        sampling_range: smallest and largest `temperature` and `top_p` in training.
        profile: the latency profile that it was trained under, as a dict.
        best_static: `(K, L1, L2)` of the best static action on the training prompts.
        data_hash: of the data set's manifest.
        models: the pair's names, by which decoding finds it.
        metrics: throughput on validation prompts and what else training measured.
    """

    verifier: str
    shape: NetworkShape
    scalars: list[str]
    default_head: Head
    target_fingerprint: str
    draft_fingerprint: str
    draft_warp: Literal["same"] | tuple[float, float]
    sampling_range: dict[str, list[float]]
    profile: dict[str, Any]
    best_static: tuple[int, int, int]
    data_hash: str
    metrics: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    git_revision: str = ""
    models: PairNames = field(default_factory=PairNames)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """A ValueError names the first field that decoding could not use."""
        check_draft_warp(self.draft_warp)
        ActionSpace(*self.shape.action_space).index(Expansion(*self.best_static))
        LatencyProfile.from_dict(self.profile)

    @classmethod
    def load(cls, path: Path) -> CheckpointConfig:
        """Read `config.json`; a UserError names what does not fit."""
        data = read_json(path, REMEDY)
        if isinstance(data, dict) and data.get("schema") in (NAMES_ALONE, DRAFTED_ONLY, WITHOUT_MODELS):
            data = data | {"models": asdict(PairNames.of(data.get("models"))), "schema": SCHEMA}
        config = parse(cls, data, (SCHEMA,), path, REMEDY)
        known = list(SCALARS), list(DRAFTED_SCALARS)  # earlier versions could not copy
        if config.scalars not in known or config.shape.num_scalars != len(config.scalars):
            reason = f"scalars are {config.scalars!r}, not the {len(SCALARS)} that this version computes"
            raise UserError(f"file '{path}' is damaged ({reason}): {REMEDY}.")
        if any(len(config.sampling_range.get(name, ())) != 2 for name in ("temperature", "top_p")):
            reason = f"sampling_range is {config.sampling_range!r}, not the two ends of temperature and top_p"
            raise UserError(f"file '{path}' is damaged ({reason}): {REMEDY}.")
        return config
