"""What a data set must satisfy before anything is trained on it or reported from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from selector.errors import UserError
from selector.manifest import Manifest

if TYPE_CHECKING:
    from selector.records import RootDataset

TOLERANCE = 1e-3


def check_manifest(manifest: Manifest) -> None:
    """The data set is complete and holds something."""
    if not manifest.complete:
        pending = sum(unit.status == "pending" for unit in manifest.units)
        raise UserError(f"complete is false ({pending} units are pending): finish the data set with `ddte generate`.")
    if not manifest.shard_rows():
        raise UserError("units have no rows: generate the data set again with longer or more trajectories.")
    for name in ("target", "draft"):
        if not isinstance(manifest.hidden_sizes.get(name), int):
            raise UserError(f"hidden_sizes is {manifest.hidden_sizes}: it must name the sizes of target and draft.")


def check_columns(dataset: RootDataset) -> None:
    """Everything is finite, and labels lie between 1 and the depth of their action's tree plus 1."""
    for name, block in dataset.hidden.items():
        _check_finite(name, block)
    _check_finite("scalars", dataset.scalars)
    _check_finite("settings", dataset.settings)
    depth = torch.tensor([expansion.max_depth for expansion in dataset.manifest.space.expansions])
    for verifier, labels in dataset.efficiency.items():
        _check_finite(f"efficiency_{verifier}", labels)
        _check_bounds(f"efficiency_{verifier}", labels, 1 + depth)
        _check_finite(f"standard_error_{verifier}", dataset.standard_error[verifier])
        if (dataset.standard_error[verifier] < 0).any():
            raise UserError(f"standard_error_{verifier} has a negative value: generate the data set again.")
    if (dataset.context_length < 0).any():
        raise UserError("context_length has a value below 0: generate the data set again.")


def _check_finite(name: str, values: Tensor) -> None:
    bad = (~torch.isfinite(values)).reshape(len(values), -1).any(1).nonzero()
    if len(bad):
        raise UserError(f"{name} of row {int(bad[0])} is NaN or infinite: generate the data set again.")


def _check_bounds(name: str, labels: Tensor, upper: Tensor) -> None:
    bad = ((labels < 1 - TOLERANCE) | (labels > upper + TOLERANCE)).nonzero()
    if len(bad):
        row, half, action = bad[0].tolist()
        raise UserError(
            f"{name} of row {row} is {float(labels[row, half, action]):.4f} for action {action}: it must lie between "
            f"1 and {int(upper[action])}; the labels are wrong, generate the data set again."
        )
