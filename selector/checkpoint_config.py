"""`config.json` of an exported selector: what it was trained for, on, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from selector.errors import UserError
from selector.latency import LatencyProfile
from selector.network import NetworkShape
from selector.provenance import checked_fields

SCHEMA = 1
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
    draft_warp: Any
    sampling_range: dict[str, list[float]]
    profile: dict[str, Any]
    best_static: tuple[int, int, int]
    data_hash: str
    metrics: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    git_revision: str = ""
    schema: int = SCHEMA

    @classmethod
    def from_dict(cls, data: Any, source: Path | str) -> CheckpointConfig:
        """Inverse of `dataclasses.asdict`, also after JSON; a UserError names what does not fit."""
        values = checked_fields(cls, data, SCHEMA, source, REMEDY)
        try:
            shape: dict[str, Any] = dict(values["shape"])
            shape.update(action_space=tuple(shape["action_space"]), hidden_sizes=tuple(shape["hidden_sizes"]))
            values.update(shape=NetworkShape(**shape), best_static=tuple(values["best_static"]))
            LatencyProfile.from_dict(values["profile"])
            config = cls(**values)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise UserError(f"file '{source}' is damaged ({error}): {REMEDY}.") from None
        if config.default_head not in HEADS:
            raise UserError(f"default_head of '{source}' is {config.default_head!r}: it must be one of {HEADS}.")
        return config
