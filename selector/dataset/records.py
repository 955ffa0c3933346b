"""The data set on disk: one parquet row a root, in shards beside a manifest; labels hold no time.

    folder/manifest.json                what the set is (see `manifest`)
    folder/ended_units.jsonl            journal of the manifest, while a run goes on
    folder/README.md                    data card
    folder/shards/part-00000.parquet    rows

Efficiency labels are stored as the means over the first and the second half of a root's samples, so that an
oracle can be chosen on one half and scored on the other. Float16 holds them to one part in 2,000, far below their
standard errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from selector.artifacts.writing import atomic_write
from selector.dataset.parquet import ORIGIN, list_column
from selector.features import FLOAT16_MAX, HIDDEN, RootFeatures

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
class RootRecord(RootFeatures):
    """One root: its features, and what else is stored of it.

    Attributes:
        position: tokens generated before the root.
        context_length: tokens before the root token: what both caches hold when the step starts.
        target_hidden, draft_hidden_prev, draft_hidden_root: stored as float16, clipped to its range.
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


def write_table(path: Path, table: Any, origin: Mapping[str, str]) -> None:
    """Write a table as one parquet shard that says where it is from; see `atomic_write`."""
    table = table.replace_schema_metadata({ORIGIN: json.dumps(dict(origin))})
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", use_dictionary=TEXTS)
