"""Artefact I/O: atomic writes, locks, claims of output folders, typed loading, versions, content hashes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import Field, TypeAdapter, ValidationError

from selector.errors import UserError, first_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from torch import Tensor

Record = TypeVar("Record", bound="DataclassInstance")
Count = Annotated[int, Field(ge=0)]  # of a JSON artefact, as `Size`
Size = Annotated[int, Field(ge=1)]
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
PARTIAL = ".{}.partial"  # what a killed write leaves beside its goal

PACKAGES = ("ddte", "torch", "transformers", "pytorch-lightning", "scikit-learn", "pyarrow", "safetensors", "numpy")


def versions() -> dict[str, str]:
    """Installed versions of Python and of the packages that results depend on."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_revision() -> str:
    """Commit of the source tree that this package runs from, `-dirty` if it has changes; `` outside of git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def content_hash(data: Any) -> str:
    """SHA-256 of a JSON value in its canonical form, 64 hex digits."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_place(field: str, path: Path) -> None:
    """A UserError if no file or folder can be made at `path`; what is tried leaves nothing behind."""
    above = path
    try:
        above = next((folder for folder in path.absolute().parents if folder.exists()), path)
        tempfile.TemporaryFile(dir=above).close()
    except OSError:
        message = f"{field} is {str(path)!r}: {str(above)!r} is no folder to write to; give another place."
        raise UserError(message) from None


def check_file(field: str, path: Path) -> None:
    """A UserError if no file can be made at `path`, or the one that is there cannot be written; see `check_place`."""
    check_place(field, path)
    try:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "a device"
            raise UserError(f"{field} is {str(path)!r}, which is {kind}: give a file.")
        if path.exists():
            path.open("r+b").close()
    except OSError as error:
        message = f"{field} is {str(path)!r}, which cannot be written ({error.strerror}): give another file."
        raise UserError(message) from None


def as_json(record: Any) -> Any:
    """A dataclass as the JSON types that a file gives back: tuples become lists."""
    return json.loads(json.dumps(asdict(record)))


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file; see `atomic_write`."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8; see `atomic_write`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file; see `atomic_write`."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; the file or folder made there takes its name at the end of the block.

    So a reader never sees half of it. The folders above are made if need be. A folder replaces none but an empty one.
    Where `path` is a link, what it leads to is written. An OSError names a file.
    """
    path = path.resolve() if path.is_symlink() else path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(PARTIAL.format(path.name))
    _remove(temporary)
    try:
        yield temporary
        if temporary.is_dir() and path.is_dir():
            for torn in filter(_is_partial, path.iterdir()):
                _remove(torn)
            path.rmdir()
        os.replace(temporary, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a write that fails names none
        raise
    finally:
        _remove(temporary)


def _is_partial(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".partial")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def sole_writer(field: str, path: Path, *, wait: bool = False) -> Iterator[None]:
    """A block in which this process alone writes to `path`, a file or a folder.

    Raises UserError where another run is at work (with `wait` its end is waited for), and where the disk is full or
    lets nothing be written; what is done already stays. The lock lies beside `path`, so that a refused run leaves no
    folder.
    """
    check_place(field, path)
    place = path.resolve()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place.with_name(f".{place.name}.lock"), wait):
            yield
    except Timeout:
        raise UserError(f"{field} is {str(path)!r}, where another run is at work: wait for it, or stop it.") from None
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        reason = f"writing failed ({error}): make room, and start the same run again"
        raise UserError(f"{field} is {str(path)!r}, where {reason}.") from None


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    """Who waits for this very file finds it without a name, and opens a new one."""
    with FileLock(path, timeout=-1 if wait else 0):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def claim_folder(field: str, folder: Path, mark: str = "", beside: Collection[str] = ()) -> bool:
    """Whether `folder` holds work to go on with, known by its file `mark`; False for a new or an empty folder.

    What is named in `beside` may lie there.
    Raises UserError for a folder of anything else, for a file, and for a place that cannot be written to.
    """
    if mark and (folder / mark).exists():
        return True
    check_place(field, folder)
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise UserError(f"{field} is {str(folder)!r}, which is a file: give a new or an empty folder.")
    if not all(_is_partial(path) or path.name in beside for path in folder.iterdir()):
        raise UserError(f"{field} is {str(folder)!r}, which holds other files: give a new or an empty folder.")
    return False


def known_settings(given: Any, stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored section of a configuration, `given` being a record of its kind; what it did not know has its default."""
    defaults: dict[str, Any] = as_json(type(given)())
    return {**defaults, **stored}


def refuse_other_run(field: str, folder: Path, stored: Mapping[str, Any], given: Any, section: str = "") -> None:
    """A UserError names the first value of `given` that differs in `folder`, which `stored` describes.

    `given` is a dict, or a dataclass of settings: then a setting that `stored` does not know yet has its default.
    """
    there = stored if isinstance(given, dict) else known_settings(given, stored)
    for name, value in (given if isinstance(given, dict) else as_json(given)).items():
        if there.get(name) != value:
            raise UserError(
                f"{field} is {str(folder)!r}, which holds another run ({section}{name} is {there.get(name)!r} there "
                f"and {value!r} here): give another folder, or the same configuration."
            )


def refuse_other_pair(what: str, stored: Mapping[str, Any], target: str, draft: str) -> None:
    """A UserError where `what`, of the fingerprints `stored`, is not of this pair; one without fingerprints passes."""
    for name, given in (("target", target), ("draft", draft)):
        if stored.get(name, given) != given:
            raise UserError(
                f"{what} is made for another {name} model (fingerprint {stored[name]}, not {given}): "
                "give the pair that it was made for, or make one for this pair."
            )


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
        if not path.parent.is_dir():
            raise UserError(f"folder '{path.parent}' does not exist: give one that holds {path.name}.") from None
        raise UserError(f"folder '{path.parent}' has no {path.name}: {remedy}.") from None
    except OSError as error:
        raise UserError(f"file '{path}' cannot be read ({error.strerror or error}): {remedy}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"file '{path}' is not JSON ({error}): {remedy}.") from None
