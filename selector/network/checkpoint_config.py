"""`config.json` of an exported selector: what it was trained for, on, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from selector.artifacts import load
from selector.config import check_draft_warp
from selector.errors import UserError
from selector.features import SCALARS
from selector.latency import LatencyProfile
from selector.network.network import NetworkShape
from selector.trees.expansion import ActionSpace, Expansion

SCHEMA = 2
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
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """A ValueError names the first field that decoding could not use."""
        check_draft_warp(self.draft_warp)
        ActionSpace(*self.shape.action_space).index(Expansion(*self.best_static))
        LatencyProfile.from_dict(self.profile)

    @classmethod
    def load(cls, path: Path) -> CheckpointConfig:
        """Read `config.json`; a UserError names what does not fit."""
        config = load(cls, path, (SCHEMA,), REMEDY)
        if config.scalars != list(SCALARS) or config.shape.num_scalars != len(SCALARS):
            reason = f"scalars are {config.scalars!r}, not the {len(SCALARS)} that this version computes"
            raise UserError(f"file '{path}' is damaged ({reason}): {REMEDY}.")
        if any(len(config.sampling_range.get(name, ())) != 2 for name in ("temperature", "top_p")):
            reason = f"sampling_range is {config.sampling_range!r}, not the two ends of temperature and top_p"
            raise UserError(f"file '{path}' is damaged ({reason}): {REMEDY}.")
        return config
