"""Where an artefact came from, and files that are whole or absent and say which schema they follow."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from selector.errors import UserError

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
    """Write a JSON file by way of a temporary one, so that a reader never sees half of it."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file by way of a temporary one; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def known_settings(given: Any, stored: dict[str, Any]) -> dict[str, Any]:
    """A stored section of a configuration, `given` being a record of its kind; what it did not know has its default."""
    defaults: dict[str, Any] = as_json(type(given)())
    return defaults | stored


def refuse_other_run(folder: Path, name: str, stored: Any, given: Any) -> None:
    """A UserError if `folder` was made with another value of the setting `name`."""
    if stored != given:
        message = f"out is {str(folder)!r}, which holds another run ({name} is {stored!r} there and {given!r} here)"
        raise UserError(f"{message}: give another folder, or the same configuration.")


def checked_fields(kind: type, data: Any, schema: int, source: Path | str, remedy: str) -> dict[str, Any]:
    """The JSON object of a dataclass `kind` with a `schema` field, once its schema and its keys are right.

    A UserError names the first field that is missing or unknown; `remedy` is the way out.
    """
    found = data.get("schema") if isinstance(data, dict) else None
    if found != schema:
        raise UserError(f"schema of '{source}' is {found!r}: this version reads {schema}; {remedy}.")
    names = {entry.name for entry in fields(kind)}
    wrong = sorted(names.symmetric_difference(data))
    if wrong:
        raise UserError(f"{wrong[0]} of '{source}' is {'missing' if wrong[0] in names else 'unknown'}: {remedy}.")
    return dict(data)


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
