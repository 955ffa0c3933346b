"""The data set on disk: one parquet row a root, in shards beside a manifest; labels hold no time.

    folder/manifest.json                what the set is (see `selector.manifest`)
    folder/ended_units.jsonl            journal of the manifest, while a run goes on
    folder/README.md                    data card
    folder/shards/part-00000.parquet    rows

Efficiency labels are stored as the means over the first and the second half of a root's samples, so that an
oracle can be chosen on one half and scored on the other. Float16 holds them to one part in 2,000, far below their
standard errors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from selector.dataset.manifest import Manifest, Unit
from selector.dataset.parquet import column, list_column, matrix, numbers, read_shards
from selector.dataset.record_checks import check_columns, check_manifest
from selector.features import FLOAT16_MAX, HIDDEN

__all__ = ["Manifest", "RootDataset", "RootRecord", "Unit", "to_table", "write_shard", "write_table"]

PLAIN_TYPES = {
    "prompt_id": pa.string(),
    "task": pa.string(),
    "prompt_index": pa.int32(),
    "position": pa.int32(),
    "context_length": pa.int32(),
    "temperature": pa.float32(),
    "top_p": pa.float32(),
    "top_k": pa.int32(),
    "draft_temperature": pa.float32(),
    "draft_top_p": pa.float32(),
}
TEXTS = [name for name, kind in PLAIN_TYPES.items() if pa.types.is_string(kind)]  # numbers only grow by a dictionary


@dataclass
class RootRecord:
    """One root.

    Attributes:
        position: tokens generated before the root.
        context_length: tokens before the root token: what both caches hold when the step starts.
        target_hidden, draft_hidden_prev, draft_hidden_root: `[d]`, stored as float16 (clipped to its range).
        scalars: `[S]`.
        efficiency: per verifier `[2, A]`: mean label over the first and the second half of the samples.
        standard_error: per verifier `[A]`: of the mean over all samples.
    """

    prompt_id: str
    task: str
    prompt_index: int
    position: int
    context_length: int
    temperature: float
    top_p: float
    top_k: int
    draft_temperature: float
    draft_top_p: float
    target_hidden: Tensor
    draft_hidden_prev: Tensor
    draft_hidden_root: Tensor
    scalars: Tensor
    efficiency: dict[str, Tensor]
    standard_error: dict[str, Tensor]


def to_table(records: Sequence[RootRecord]) -> Any:
    """An arrow table with one row a record; at least one record is needed."""
    if not records:
        raise ValueError("a shard needs at least one record")
    columns: dict[str, Any] = {
        name: pa.array([getattr(record, name) for record in records], kind) for name, kind in PLAIN_TYPES.items()
    }
    for name in HIDDEN:
        clipped = [getattr(record, name).float().clamp(-FLOAT16_MAX, FLOAT16_MAX) for record in records]
        columns[name] = list_column(clipped, pa.float16())
    columns["scalars"] = list_column([record.scalars for record in records], pa.float32())
    for verifier in records[0].efficiency:
        efficiency = [record.efficiency[verifier].reshape(-1) for record in records]
        columns[f"efficiency_{verifier}"] = list_column(efficiency, pa.float16())
        errors = [record.standard_error[verifier] for record in records]
        columns[f"standard_error_{verifier}"] = list_column(errors, pa.float16())
    return pa.table(columns)


def write_shard(path: Path, records: Sequence[RootRecord]) -> None:
    """See `to_table` and `write_table`."""
    write_table(path, to_table(records))


def write_table(path: Path, table: Any) -> None:
    """Write a table as one parquet shard by way of a temporary file; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        pq.write_table(table, temporary, compression="zstd", use_dictionary=TEXTS)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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
        check_manifest(manifest)
        dataset = _from_table(manifest, read_shards(folder / "shards", manifest.shard_rows()))
        check_columns(dataset)
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
