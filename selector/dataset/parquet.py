"""Reading and writing the columns of parquet shards as tensors."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from selector.dataset.manifest import Manifest, Unit
from selector.errors import UserError, first_line

ORIGIN = "ddte"  # key of a shard's metadata: the unit and both models' fingerprints, as JSON


def list_column(rows: list[Tensor], kind: Any) -> Any:
    """Rows of equal length as an arrow list column of a float type."""
    values = torch.stack(rows).detach().cpu().double().numpy().astype(kind.to_pandas_dtype())
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1), kind))


def is_whole(path: Path, unit: Unit) -> bool:
    """Whether a shard is there and is what the manifest says of it; one without a checksum is known by its rows."""
    try:
        if unit.checksum:
            return checksum(path.read_bytes()) == unit.checksum
        return int(pq.read_metadata(path).num_rows) == unit.rows
    except (pa.ArrowException, OSError):
        return False


def checksum(content: bytes) -> str:
    """SHA-256 of a shard's file, 64 hex digits."""
    return sha256(content).hexdigest()


def read_shards(folder: Path, manifest: Manifest) -> Any:
    """One arrow table of all shards; each must be what the manifest says."""
    tables = [_read_shard(folder / name, unit, manifest) for name, unit in manifest.shards.items()]
    try:
        return pa.concat_tables(tables)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        reason = first_line(error)  # whole schemas follow
        raise UserError(f"shards of {str(folder)!r} have different columns ({reason}): generate again.") from None


def _read_shard(path: Path, unit: Unit, manifest: Manifest) -> Any:
    try:
        content = path.read_bytes()
        if unit.checksum and checksum(content) != unit.checksum:
            raise UserError(f"shard {str(path)!r} is not what was written (its checksum differs): generate it again.")
        table = pq.read_table(pa.BufferReader(content))
    except FileNotFoundError:
        raise UserError(f"shard {str(path)!r} is missing: run `ddte generate` again.") from None
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"shard {str(path)!r} cannot be read ({first_line(error)}): delete it and generate again."
        ) from None
    if table.num_rows != unit.rows:
        raise UserError(f"rows of {str(path)!r} is {table.num_rows}: the manifest says {unit.rows}; generate again.")
    origin = json.loads((table.schema.metadata or {}).get(ORIGIN.encode(), "{}"))
    for name, value in manifest.origin(unit).items():
        if origin.get(name, value) != value:  # a shard of an earlier version says nothing
            raise UserError(
                f"shard {str(path)!r} is of another data set ({name} is {origin[name]!r} there and {value!r} in the "
                "manifest): put the set's own shard there, or generate it again."
            )
    return table


def column(table: Any, name: str) -> Any:
    """A column without empty rows."""
    if name not in table.column_names:
        raise UserError(f"column {name} is missing: generate the data set again with this version.")
    values = table.column(name).combine_chunks()
    if values.null_count:
        raise UserError(f"{name} has {values.null_count} empty rows: generate the data set again.")
    return values


def numbers(table: Any, name: str) -> Tensor:
    """A column of numbers, `[rows]`, float64."""
    values = column(table, name)
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise UserError(f"{name} is a column of {values.type}, not of numbers: generate the data set again.")
    return torch.from_numpy(values.to_numpy(zero_copy_only=False).astype(np.float64))


def matrix(table: Any, name: str, width: int) -> Tensor:
    """A list column as float32 `[rows, width]`."""
    lists = column(table, name)
    if not pa.types.is_list(lists.type) or not pa.types.is_floating(lists.type.value_type):
        raise UserError(f"{name} is a column of {lists.type}, not of lists of numbers: generate the data set again.")
    lengths = np.diff(lists.offsets.to_numpy())
    if (lengths != width).any():
        raise UserError(f"{name} has a row of length {lengths[lengths != width][0]}: the manifest says {width}.")
    values = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    return torch.from_numpy(values.reshape(-1, width))
