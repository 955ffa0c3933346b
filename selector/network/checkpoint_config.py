"""`config.json` of an exported selector: what it was trained for, on, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from selector.artifacts import checked_fields
from selector.config import check_draft_warp
from selector.errors import UserError
from selector.features import SCALARS
from selector.field_checks import check_dict, check_number, check_whole, checked_space
from selector.latency import LatencyProfile
from selector.network.network import INPUTS, NetworkShape
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
            _check(config)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise UserError(f"file '{source}' is damaged ({error}): {REMEDY}.") from None
        if config.default_head not in HEADS:
            raise UserError(f"default_head of '{source}' is {config.default_head!r}: it must be one of {HEADS}.")
        return config


def _check(config: CheckpointConfig) -> None:
    """A ValueError names the first field that decoding could not use."""
    _check_shape(config.shape)
    if config.scalars != list(SCALARS) or config.shape.num_scalars != len(SCALARS):
        raise ValueError(f"scalars are {config.scalars!r}, not the {len(SCALARS)} that this version computes")
    for name in ("verifier", "target_fingerprint", "draft_fingerprint", "data_hash"):
        if not isinstance(getattr(config, name), str):
            raise ValueError(f"{name} is {getattr(config, name)!r}, not a text")
    check_draft_warp(config.draft_warp)
    check_dict("sampling_range", config.sampling_range, ("temperature", "top_p"))
    for name, (low, high) in config.sampling_range.items():
        check_number(f"sampling_range of {name}", low)
        check_number(f"sampling_range of {name}", high)
    ActionSpace(*config.shape.action_space).index(Expansion(*checked_space("best_static", config.best_static)))
    check_dict("metrics", config.metrics)
    for name, value in config.metrics.items():
        check_number(f"metric {name}", value)


def _check_shape(shape: NetworkShape) -> None:
    checked_space("action_space", shape.action_space)
    for name in ("target_hidden", "draft_hidden", "num_scalars", "components"):
        check_whole(name, getattr(shape, name))
    if shape.inputs not in [*INPUTS]:
        raise ValueError(f"inputs is {shape.inputs!r}, not one of {', '.join(INPUTS)}")
    if len(shape.hidden_sizes) != 2:
        raise ValueError(f"hidden_sizes is {shape.hidden_sizes}, not two sizes")
    for size in shape.hidden_sizes:
        check_whole("hidden_sizes", size)
    check_number("dropout", shape.dropout)
    if not 0 <= shape.dropout < 1:
        raise ValueError(f"dropout is {shape.dropout}, not a share below 1")
