"""What a run will take, before any model is loaded."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

from selector.config import EMBEDDED_TARGET, ActionSpaceConfig, Config, PairConfig
from selector.errors import UserError
from selector.features import SCALARS
from selector.hub import config_file
from selector.shipped import find
from selector.trees.expansion import ActionSpace

EMBEDDED_HIDDEN = 576
UNKNOWN_HIDDEN = 8192  # of a model whose configuration cannot be read yet
MAX_ACTIONS = 100_000
PLAIN_BYTES = 120  # names, numbers and parquet's own share of a row
SHARD_BYTES = 12_000  # a shard's schema and footer


@dataclass(frozen=True)
class Estimate:
    """Upper bounds: trajectories that end early have fewer roots, and shards are compressed."""

    units: int
    roots: int
    bytes_per_root: int
    total_bytes: int
    free_bytes: int

    def describe(self) -> str:
        """One line for people."""
        return (
            f"{self.units} trajectories, at most {self.roots} roots of {self.bytes_per_root / 1000:.1f} kB: "
            f"at most {_megabytes(self.total_bytes)}; {_megabytes(self.free_bytes)} are free."
        )


def estimate(config: Config, num_units: int, folder: Path) -> Estimate:
    """Roots and bytes of `num_units` units. Raises UserError when the disk cannot hold them."""
    target, draft = hidden_sizes(config.pair)
    labels = 2 * len(config.generate.verifiers) * 3 * count_actions(config.action_space)
    per_root = 2 * (target + 2 * draft) + 4 * len(SCALARS) + labels + PLAIN_BYTES
    roots = num_units * math.ceil(config.generate.max_new_tokens / config.generate.root_every)
    total = roots * per_root + num_units * SHARD_BYTES
    free = shutil.disk_usage(_existing(folder)).free
    if total > free:
        raise UserError(
            f"out is {str(folder)!r}, where {_megabytes(free)} are free and up to {_megabytes(total)} are needed: "
            "take another disk, fewer prompts or a smaller action space."
        )
    return Estimate(num_units, roots, per_root, total, free)


def count_actions(space: ActionSpaceConfig) -> int:
    """Canonical expansions of the space, `len(ActionSpace(...))`, without listing the drafted ones.

    Raises UserError for a space that is empty, or larger than any model could label.
    """
    whole = ActionSpace(*space.limits)
    branches, trunk, length = whole.limits
    actions = (trunk + length + 1) + (branches - 1) * (trunk + 1) * length + len(whole.copies)
    if actions > MAX_ACTIONS:
        raise UserError(
            f"action_space is ({branches}, {trunk}, {length}), which has {actions} expansions: "
            f"take a smaller one, of at most {MAX_ACTIONS}."
        )
    return actions


def hidden_sizes(pair: PairConfig) -> tuple[int, int]:
    """Hidden sizes of target and draft from their configuration files, without loading a model."""
    target = EMBEDDED_HIDDEN
    if pair.target != EMBEDDED_TARGET:
        target = _hidden_size("target", pair.target, pair.revision, UNKNOWN_HIDDEN)
    return target, _hidden_size("draft", pair.draft, pair.draft_revision, target)


def _hidden_size(field: str, source: str, revision: str, default: int) -> int:
    """`default` where the file names no size (an early-exit draft has the target's) or cannot be read here."""
    try:
        data = json.loads(config_file(field, str(find(source)), revision).read_text("utf-8"))
    except Exception:  # a wrong name is refused with its reason when the model is loaded
        return default
    size = data.get("hidden_size") or data.get("text_config", {}).get("hidden_size")
    return size if isinstance(size, int) else default


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def _megabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
