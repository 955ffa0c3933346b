"""Pass times of a machine, as measured, and the time of a decoding step with each action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Num
from pydantic import Field
from torch import Tensor

from selector.artifacts.claims import refuse_other_pair
from selector.artifacts.loading import Size, load, parse
from selector.artifacts.origin import content_hash
from selector.artifacts.writing import write_json
from selector.errors import UserError
from selector.provenance import Provenance, hardware_words
from selector.shipped import find
from selector.trees.expansion import Action, ActionSpace, CopyExpansion

SCHEMA, WITHOUT_PROVENANCE = SCHEMAS = (2, 1)
NEWER: dict[str, Any] = {"provenance": {}}
REMEDY = "make one with `ddte profile`"
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
CONTEXT_STEP = 32  # decoding looks times up for contexts in steps of so many tokens


@dataclass(frozen=True)
class LatencyProfile:
    """Seconds of one pass, `[contexts][widths]`: `width` new tokens after `context` cached ones.

    Attributes:
        contexts, widths: the measured grid, ascending.
        target_seconds, draft_seconds: medians of one pass.
        overhead_seconds: per width, what a step of that many target rows spends outside the models
            (verification, cache, Python); `selector_seconds` is the cost of features and network.
        plain_seconds: per context, one token of transformers' own `generate`.
        machine: what was measured on (device, dtype, threads, versions, the pair's fingerprints).
        provenance: where the times come from, for people.
    """

    contexts: tuple[Size, ...]
    widths: tuple[Size, ...]
    target_seconds: tuple[tuple[Positive, ...], ...]
    draft_seconds: tuple[tuple[Seconds, ...], ...]
    overhead_seconds: tuple[Seconds, ...]
    plain_seconds: tuple[Positive, ...]
    selector_seconds: Seconds = 0.0
    machine: dict[str, Any] = field(default_factory=dict)
    provenance: Provenance = field(default_factory=Provenance)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        for name in ("contexts", "widths"):
            grid = getattr(self, name)
            if not grid or any(after <= before for before, after in pairwise(grid)):
                raise ValueError(f"{name} is {grid}, not ascending")
        for name, grid in (("overhead_seconds", self.widths), ("plain_seconds", self.contexts)):
            _check_shape(name, getattr(self, name), len(grid))
        for name in ("target_seconds", "draft_seconds"):
            _check_shape(name, getattr(self, name), len(self.contexts))
            for row in getattr(self, name):
                _check_shape(f"a row of {name}", row, len(self.widths))

    @property
    def hardware(self) -> str:
        """What passes ran on, in words."""
        return self.provenance.hardware or hardware_words(self.machine)

    @property
    def identity(self) -> str:
        """SHA-256 of times and machine, as of the schema without provenance: runs that began with it go on."""
        times = {name: value for name, value in asdict(self).items() if name != "provenance"}
        return content_hash(times | {"schema": WITHOUT_PROVENANCE})

    def target_time(self, context: Tensor, width: int) -> Tensor:
        """Seconds of one target pass over `width` new tokens at each `context [roots]`."""
        return self._interpolate(self.target_seconds, context, width)

    def draft_time(self, context: Tensor, width: int) -> Tensor:
        """Seconds of one draft pass over `width` new tokens at each `context [roots]`."""
        return self._interpolate(self.draft_seconds, context, width)

    def plain_time(self, context: Tensor) -> Tensor:
        """Seconds a token of transformers' `generate` at each `context [roots]`."""
        return torch.from_numpy(np.interp(context.double().numpy(), self.contexts, self.plain_seconds))

    def step_time(self, context: Tensor, expansion: Action) -> Tensor:
        """`T(l, a)` (arXiv 2602.16994, section 4, with each pass's width): seconds of one step, `[roots]`, float64.

        A tree of depth `D` takes `D` draft passes: the first covers the root token, those up to the trunk's
        end one token, the others a whole level. The deepest level is not run through the draft. A copied chain takes
        no draft pass; where something is drafted below it, the first covers the root token and the chain.
        """
        branches, trunk, length = expansion.drafted
        copied = expansion.length if isinstance(expansion, CopyExpansion) and not expansion.beside else 0
        seconds = self.target_time(context, expansion.width)
        if expansion.drafted.max_depth:
            seconds = seconds + self.draft_time(context, 1 + copied)
        for position in range(1, min(trunk + 1, expansion.drafted.max_depth)):
            seconds = seconds + self.draft_time(context + copied + position, 1)
        for level in range(1, length):
            seconds = seconds + self.draft_time(context + copied + trunk + 1 + (level - 1) * branches, branches)
        overhead = np.interp(expansion.width, self.widths, self.overhead_seconds)
        return seconds + float(overhead)

    def chosen_time(self, context: Tensor, expansion: Action) -> Tensor:
        """Seconds of a step whose action was chosen from the root's features, `[roots]`, float64.

        Features and network cost `selector_seconds`; and the draft pass over the root token, which every drafted tree
        needs anyway, is paid for nothing where the choice is not to speculate, or to copy first.
        """
        seconds = self.step_time(context, expansion) + self.selector_seconds
        wanted = expansion.beside if isinstance(expansion, CopyExpansion) else expansion.max_depth > 0
        return seconds if wanted else seconds + self.draft_time(context, 1)

    def action_times(self, context: Tensor, space: ActionSpace) -> Tensor:
        """`step_time` of every action, `[roots, actions]`, float64: without the selector's own cost."""
        return _of_actions(self.step_time, context, space)

    def selector_times(self, context: Tensor, space: ActionSpace) -> Tensor:
        """`chosen_time` of every action, `[roots, actions]`, float64."""
        return _of_actions(self.chosen_time, context, space)

    def disturbance(self) -> str | None:
        """A warning if a pass took more than twice its time at a longer context (busy machine), else None."""
        plain = tuple((seconds,) for seconds in self.plain_seconds)
        tables = {"the target": self.target_seconds, "the draft": self.draft_seconds, "plain generate": plain}
        for model, table in tables.items():
            for place, context in enumerate(self.contexts[:-1]):
                for width, seconds, *longer in zip(self.widths, *table[place:], strict=False):
                    if seconds > 2 * min(longer):
                        return (
                            f"a pass of {model} over {width} rows took {1000 * seconds:.1f} ms on {context} tokens and "
                            f"{1000 * min(longer):.1f} ms on more: the machine was busy, measure it again when idle."
                        )
        return None

    def _interpolate(self, table: tuple[tuple[float, ...], ...], context: Tensor, width: int) -> Tensor:
        """Linear in both directions; past the grid's end it extrapolates in width, and stays flat in context."""
        columns = np.asarray(table)
        if width > self.widths[-1] and len(self.widths) > 1:
            slope = (columns[:, -1] - columns[:, -2]) / (self.widths[-1] - self.widths[-2])
            at_width = columns[:, -1] + np.maximum(slope, 0.0) * (width - self.widths[-1])
        else:
            at_width = np.array([np.interp(width, self.widths, row) for row in columns])
        return torch.from_numpy(np.interp(context.double().numpy(), self.contexts, at_width))

    def check_pair(self, target_fingerprint: str, draft_fingerprint: str) -> None:
        """Refuse pass times that were measured with another pair."""
        refuse_other_pair("profile", self.machine, target_fingerprint, draft_fingerprint)

    def save(self, path: Path | str) -> None:
        """Write JSON by way of a temporary file."""
        write_json(Path(path), asdict(self))

    @classmethod
    def load(cls, path: Path | str) -> LatencyProfile:
        """Read and check a profile, or a shipped one by name."""
        path = find(path)
        if not path.exists():
            raise UserError(f"profile {str(path)!r} does not exist: {REMEDY}.")
        return load(cls, path, SCHEMAS, REMEDY, NEWER)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LatencyProfile:
        """Inverse of `dataclasses.asdict`, also after JSON; a UserError names what does not fit."""
        return parse(cls, data, SCHEMAS, "profile", REMEDY, NEWER)


def _of_actions(seconds: Callable[[Tensor, Action], Tensor], context: Tensor, space: ActionSpace) -> Tensor:
    """`[roots, actions]`; equal contexts are looked up once."""
    lengths, inverse = torch.unique(context, return_inverse=True)
    return torch.stack([seconds(lengths, expansion) for expansion in space.expansions], 1)[inverse]


def latency_scalars(context_length: Num[Tensor, " roots"], profile: LatencyProfile) -> Float[Tensor, "roots 2"]:
    """Log10 seconds of a draft and of a target pass of width 1 at each `context_length`, float32.

    They are appended to the scalars at the network's input and never stored: a data set holds no time.
    """
    times = torch.stack([profile.draft_time(context_length, 1), profile.target_time(context_length, 1)], 1)
    return times.clamp(min=1e-9).log10().float()


def _check_shape(name: str, table: Sequence[Any], rows: int) -> None:
    if len(table) != rows:
        raise ValueError(f"{name} has {len(table)} entries, not {rows} as the grid")
