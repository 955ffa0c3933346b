"""Reading and writing the columns of parquet shards as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from selector.errors import UserError


def list_column(rows: list[Tensor], kind: Any) -> Any:
    """Rows of equal length as an arrow list column of a float type."""
    values = torch.stack(rows).detach().cpu().double().numpy().astype(kind.to_pandas_dtype())
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.reshape(-1), kind))


def count_rows(path: Path) -> int | None:
    """Rows of a shard by its footer; None for a shard that is missing, cut off or no parquet file."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return None


def read_shards(folder: Path, shard_rows: Mapping[str, int]) -> Any:
    """One arrow table of all shards; each must hold as many rows as the manifest says."""
    tables = []
    for name, rows in shard_rows.items():
        path = folder / name
        try:
            table = pq.read_table(path)
        except FileNotFoundError:
            raise UserError(f"shard {str(path)!r} is missing: run `ddte generate` again.") from None
        except (pa.ArrowException, OSError) as error:
            raise UserError(
                f"shard {str(path)!r} cannot be read ({_first_line(error)}): delete it and generate again."
            ) from None
        if table.num_rows != rows:
            raise UserError(f"rows of {str(path)!r} is {table.num_rows}: the manifest says {rows}; generate again.")
        tables.append(table)
    try:
        return pa.concat_tables(tables)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        reason = _first_line(error)
        raise UserError(f"shards of {str(folder)!r} have different columns ({reason}): generate again.") from None


def _first_line(error: Exception) -> str:
    """Arrow lists whole schemas below it."""
    return str(error).strip().splitlines()[0].rstrip(".:")


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
