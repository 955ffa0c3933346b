"""A data set in memory: `RootDataset`, and what its columns must satisfy before anything is trained or reported."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selector.dataset.manifest import Manifest
from selector.dataset.parquet import column, matrix, numbers, read_shards
from selector.errors import UserError
from selector.features import HIDDEN, MATCH

TOLERANCE = 1e-3
SURE = 5  # standard errors over roots that a mean may lie above its bound: labels are unbiased, not bounded


@dataclass
class RootDataset:
    """A whole data set in memory, one row a root.

    Attributes:
        hidden: per block of `HIDDEN` a float32 `[N, d]`.
        scalars: `[N, S]`, float32.
        efficiency: per verifier `[N, 2, A]`, float32; `standard_error`: per verifier `[N, A]`.
        prompt_ids, tasks: per root.
        settings: `[N, 2]`: temperature and top-p.
        context_length, position: `[N]`, int64.
    """

    manifest: Manifest
    hidden: dict[str, Tensor]
    scalars: Tensor
    efficiency: dict[str, Tensor]
    standard_error: dict[str, Tensor]
    prompt_ids: list[str]
    tasks: list[str]
    settings: Tensor
    context_length: Tensor
    position: Tensor

    def __len__(self) -> int:
        return len(self.prompt_ids)

    @property
    def match_length(self) -> Tensor:
        """`[N]`: length of the earlier match of the text's last tokens; 0 where nothing can be copied."""
        names = self.manifest.scalars
        return self.scalars[:, names.index(MATCH)] if MATCH in names else torch.zeros(len(self))

    @property
    def matched(self) -> Tensor:
        """`[N]`, bool: roots where something can be copied."""
        return self.match_length > 0

    def mean_efficiency(self, verifier: str) -> Tensor:
        """`[N, A]`: label over all samples."""
        return self.efficiency[verifier].mean(1)

    def subset(self, rows: Sequence[int] | Tensor) -> RootDataset:
        """The given rows, in the given order."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        return RootDataset(
            manifest=self.manifest,
            hidden={name: block[index] for name, block in self.hidden.items()},
            scalars=self.scalars[index],
            efficiency={name: labels[index] for name, labels in self.efficiency.items()},
            standard_error={name: errors[index] for name, errors in self.standard_error.items()},
            prompt_ids=[self.prompt_ids[row] for row in index.tolist()],
            tasks=[self.tasks[row] for row in index.tolist()],
            settings=self.settings[index],
            context_length=self.context_length[index],
            position=self.position[index],
        )

    @classmethod
    def load(cls, folder: Path | str) -> RootDataset:
        """Read and check a data set; a UserError names the first field that does not fit."""
        folder = Path(folder)
        manifest = Manifest.load(folder)
        manifest.require_complete()
        dataset = _from_table(manifest, read_shards(folder / "shards", manifest))
        _check_columns(dataset)
        if unchecked := sum(not unit.checksum for unit in manifest.shards.values()):
            warnings.warn(
                f"data set '{folder}' was made by an earlier version: {unchecked} shards have no checksum, so that "
                "damage to their values is not seen.",
                stacklevel=2,
            )
        return dataset


def _from_table(manifest: Manifest, table: Any) -> RootDataset:
    sizes, actions = manifest.hidden_sizes, len(manifest.space)
    widths = dict(zip(HIDDEN, (sizes["target"], sizes["draft"], sizes["draft"]), strict=True))
    efficiency = {name: matrix(table, f"efficiency_{name}", 2 * actions) for name in manifest.verifiers}
    return RootDataset(
        manifest=manifest,
        hidden={name: matrix(table, name, width) for name, width in widths.items()},
        scalars=matrix(table, "scalars", len(manifest.scalars)),
        efficiency={name: labels.reshape(-1, 2, actions) for name, labels in efficiency.items()},
        standard_error={name: matrix(table, f"standard_error_{name}", actions) for name in manifest.verifiers},
        prompt_ids=column(table, "prompt_id").to_pylist(),
        tasks=column(table, "task").to_pylist(),
        settings=torch.stack([numbers(table, "temperature"), numbers(table, "top_p")], 1).float(),
        context_length=numbers(table, "context_length").long(),
        position=numbers(table, "position").long(),
    )


def _check_columns(dataset: RootDataset) -> None:
    """Everything is finite, and labels lie where they can.

    An expected number of tokens lies between 1 and the tree's depth plus 1. Traversal's depth-wise label is an unbiased
    estimate of it that can pass the upper bound: a level's terms, at most one a branch, are expectations given
    different parts of the drawing. So its upper bound holds for an action's mean over the roots, and a single label
    may reach `K` times as far above 1.
    """
    for name, block in dataset.hidden.items():
        _check_finite(name, block)
    _check_finite("scalars", dataset.scalars)
    _check_finite("settings", dataset.settings)
    depth = torch.tensor([expansion.max_depth for expansion in dataset.manifest.space.expansions])
    branches = torch.tensor([expansion.drafted.num_branches for expansion in dataset.manifest.space.expansions])
    for verifier, labels in dataset.efficiency.items():
        _check_finite(f"efficiency_{verifier}", labels)
        _check_bounds(f"efficiency_{verifier}", labels, depth, branches if verifier == "traversal" else 1)
        _check_finite(f"standard_error_{verifier}", dataset.standard_error[verifier])
        if (dataset.standard_error[verifier] < 0).any():
            raise UserError(f"standard_error_{verifier} has a negative value: generate the data set again.")
    if (dataset.context_length < 0).any():
        raise UserError("context_length has a value below 0: generate the data set again.")


def _check_finite(name: str, values: Tensor) -> None:
    bad = (~torch.isfinite(values)).reshape(len(values), -1).any(1).nonzero()
    if len(bad):
        raise UserError(f"{name} of row {int(bad[0])} is NaN or infinite: generate the data set again.")


def _check_bounds(name: str, labels: Tensor, depth: Tensor, slack: Tensor | int) -> None:
    """Single labels lie at most `slack` times the depth above 1, their means at most the depth but for noise."""
    upper = 1 + depth * slack
    bad = ((labels < 1 - TOLERANCE) | (labels > upper + TOLERANCE)).nonzero()
    if len(bad):
        row, half, action = bad[0].tolist()
        value, where = float(labels[row, half, action]), f"of row {row} for action {action}"
        raise UserError(_out_of_bounds(f"{name} {where}", value, int(upper[action])))
    roots = labels.double().mean(1)
    means, errors = roots.mean(0), roots.std(0) / len(roots) ** 0.5  # the error of a single root is NaN
    bad = (means > 1 + depth + TOLERANCE + SURE * errors).nonzero()
    if len(labels) and len(bad):
        action = int(bad[0])
        raise UserError(_out_of_bounds(f"mean {name} of action {action}", float(means[action]), 1 + int(depth[action])))


def _out_of_bounds(name: str, value: float, upper: int) -> str:
    return f"{name} is {value:.4f}: it must lie between 1 and {upper}; generate the data set again."
