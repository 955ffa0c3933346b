"""What a data set must satisfy before anything is trained on it or reported from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from selector.dataset.manifest import Manifest
from selector.errors import UserError

if TYPE_CHECKING:
    from selector.dataset.records import RootDataset

TOLERANCE = 1e-3


def check_manifest(manifest: Manifest) -> None:
    """The data set is complete and holds something."""
    if not manifest.complete:
        pending = sum(unit.status == "pending" for unit in manifest.units)
        raise UserError(f"complete is false ({pending} units are pending): finish the data set with `ddte generate`.")
    if not manifest.shard_rows():
        raise UserError("units have no rows: generate the data set again with longer or more trajectories.")
    for name in ("target", "draft"):
        size = manifest.hidden_sizes.get(name)
        if not isinstance(size, int) or size < 1:
            raise UserError(f"hidden_sizes is {manifest.hidden_sizes}: it must name the sizes of target and draft.")
    if not manifest.verifiers:
        raise UserError("verifiers is empty: generate the data set again with one verifier or more.")


def check_columns(dataset: RootDataset) -> None:
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
    branches = torch.tensor([expansion.num_branches for expansion in dataset.manifest.space.expansions])
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
    """Single labels lie at most `slack` times the depth above 1, their means at most the depth."""
    upper = 1 + depth * slack
    bad = ((labels < 1 - TOLERANCE) | (labels > upper + TOLERANCE)).nonzero()
    if len(bad):
        row, half, action = bad[0].tolist()
        value, where = float(labels[row, half, action]), f"of row {row} for action {action}"
        raise UserError(_out_of_bounds(f"{name} {where}", value, int(upper[action])))
    means = labels.double().mean((0, 1))
    bad = (means > 1 + depth + TOLERANCE).nonzero()
    if len(labels) and len(bad):
        action = int(bad[0])
        raise UserError(_out_of_bounds(f"mean {name} of action {action}", float(means[action]), 1 + int(depth[action])))


def _out_of_bounds(name: str, value: float, upper: int) -> str:
    return f"{name} is {value:.4f}: it must lie between 1 and {upper}; generate the data set again."
