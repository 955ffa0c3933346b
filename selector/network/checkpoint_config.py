"""`config.json` of an exported selector: what it was trained for, on, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from selector.artifacts import parse, read_json
from selector.config import EMBEDDED_TARGET, PairConfig, check_draft_warp
from selector.errors import UserError
from selector.features import SCALARS
from selector.latency import LatencyProfile
from selector.network.network import NetworkShape
from selector.trees.expansion import ActionSpace, Expansion

SCHEMA = 4
DRAFTED_ONLY = 3  # the schema before: its actions copy nothing
WITHOUT_MODELS = 2  # and before that: it knows the models by their fingerprints alone
REMEDY = "export the checkpoint again with `ddte export`"
Head = Literal["policy", "regressor"]
HEADS: tuple[Head, ...] = ("policy", "regressor")


@dataclass(frozen=True)
class Models:
    """Names of a pair, as `PairConfig` has them; folders by their absolute paths. Empty where they are not known.

    Attributes:
        dtype: of the passes that training data comes from.
    """

    target: str = ""
    draft: str = ""
    revision: str = ""
    draft_revision: str = ""
    quantization: Literal["none", "nf4"] = "none"
    dtype: str = ""

    @classmethod
    def of(cls, pair: Mapping[str, Any], dtype: str) -> Models:
        """Those of a data set, whose configuration of the pair is `pair`."""
        names = {name: pair[name] for name in ("revision", "draft_revision", "quantization") if name in pair}
        return cls(_lasting(pair.get("target", "")), _lasting(pair.get("draft", "")), dtype=dtype, **names)

    def given_to(self, pair: PairConfig) -> PairConfig:
        """`pair` with these models, unless it names some itself."""
        if not self.target or (pair.target, pair.draft) != (PairConfig.target, PairConfig.draft):
            return pair
        return replace(
            pair,
            target=self.target,
            draft=self.draft,
            revision=self.revision,
            draft_revision=self.draft_revision,
            quantization=self.quantization,
        )


def _lasting(name: str) -> str:
    """A folder's name that holds in every working directory; what is shipped has one already."""
    if name in ("", EMBEDDED_TARGET) or Path(name).parts[0] == "checkpoints" or not Path(name).is_dir():
        return name
    return str(Path(name).absolute())


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
    models: Models = field(default_factory=Models)
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
        if isinstance(data, dict) and data.get("schema") == WITHOUT_MODELS:
            data = {"models": vars(Models())} | data | {"schema": DRAFTED_ONLY}
        config = parse(cls, data, (SCHEMA, DRAFTED_ONLY), path, REMEDY)
        if config.scalars != list(SCALARS) or config.shape.num_scalars != len(SCALARS):
            reason = f"scalars are {config.scalars!r}, not the {len(SCALARS)} that this version computes"
            raise UserError(f"file '{path}' is damaged ({reason}): {REMEDY}.")
        if any(len(config.sampling_range.get(name, ())) != 2 for name in ("temperature", "top_p")):
            reason = f"sampling_range is {config.sampling_range!r}, not the two ends of temperature and top_p"
            raise UserError(f"file '{path}' is damaged ({reason}): {REMEDY}.")
        return config
