"""Typed loading: JSON files as dataclasses, and tensors, refused by name where they are not what they should be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from selector.errors import UserError, first_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from torch import Tensor

Record = TypeVar("Record", bound="DataclassInstance")
Count = Annotated[int, Field(ge=0)]  # of a JSON artefact, as `Size`
Size = Annotated[int, Field(ge=1)]


def load(
    kind: type[Record], path: Path, schemas: tuple[int, ...], remedy: str, newer: Mapping[str, Any] | None = None
) -> Record:
    """The JSON file of a dataclass `kind`; see `read_json` and `parse`."""
    return parse(kind, read_json(path, remedy), schemas, path, remedy, newer)


def parse(
    kind: type[Record],
    data: Any,
    schemas: tuple[int, ...],
    source: Path | str,
    remedy: str,
    newer: Mapping[str, Any] | None = None,
) -> Record:
    """A dataclass from the JSON object that `asdict` makes of it, every value of the very type that its field names.

    `schemas` are the values of its field `schema` that this version reads, its own first; empty where it has no such
    field. `newer` are fields that the earlier schemas lack, with what they hold there.
    Raises UserError that names the first field that is missing, unknown, or has a value that it cannot have; `remedy`
    is the way out. What types do not tell, `__post_init__` of the dataclasses refuses with a ValueError.
    """
    if not isinstance(data, dict):
        raise UserError(f"file '{source}' is damaged (it holds a {type(data).__name__}, not an object): {remedy}.")
    if schemas and data.get("schema") not in schemas:
        known = " and ".join(map(str, schemas))
        raise UserError(f"schema of '{source}' is {data.get('schema')!r}: this version reads {known}; {remedy}.")
    if newer and data["schema"] != schemas[0]:
        data = {**newer, **data}
    names = {entry.name for entry in fields(kind)}
    wrong = sorted(names.symmetric_difference(data))
    if wrong:
        raise UserError(f"{wrong[0]} of '{source}' is {'missing' if wrong[0] in names else 'unknown'}: {remedy}.")
    try:
        record: Record = _adapter(kind).validate_json(json.dumps(data), strict=True, extra="forbid")
    except ValidationError as error:
        raise UserError(f"file '{source}' is damaged ({complaint(error)}): {remedy}.") from None
    return record


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def complaint(error: ValidationError) -> str:
    """The first thing that is wrong: the path of the field, its value, and what it should be."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":
        return first_line(first["ctx"]["error"])
    name = ".".join(str(key) for key in first["loc"] if "[" not in str(key))  # brackets: a member of a union
    if first["type"] == "missing":
        return f"{name} is missing"
    return f"{name} is {first['input']!r}; {first['msg'][0].lower()}{first['msg'][1:]}"


def load_tensors(path: Path, divisors: str = "none") -> dict[str, Tensor]:
    """The tensors of a safetensors file by name. Raises ValueError for one that holds NaN or infinity.

    Those whose name ends in `divisors` may hold infinity: what they divide is then not read.
    """
    from safetensors.torch import load_file

    tensors = load_file(path)
    for name, tensor in tensors.items():
        if not (tensor.isfinite() | (tensor.isposinf() & name.endswith(divisors))).all():
            raise ValueError(f"{name} holds NaN or infinity")
    return tensors


def read_json(path: Path, remedy: str) -> Any:
    """A JSON file's content; a UserError if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if path.parent.is_file():
            raise UserError(f"'{path.parent}' is a file: give the folder that holds {path.name}.") from None
        if not path.parent.is_dir():
            raise UserError(f"folder '{path.parent}' does not exist: give one that holds {path.name}.") from None
        raise UserError(f"folder '{path.parent}' has no {path.name}: {remedy}.") from None
    except OSError as error:
        raise UserError(f"file '{path}' cannot be read ({error.strerror or error}): {remedy}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"file '{path}' is not JSON ({error}): {remedy}.") from None
