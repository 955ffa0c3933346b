"""Writes that are whole or absent: files and folders take their name when all of them is there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

PARTIAL = ".{}.partial"  # what a killed write leaves beside its goal


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
            for torn in filter(is_partial, path.iterdir()):
                _remove(torn)
            path.rmdir()
        os.replace(temporary, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a write that fails names none
        raise
    finally:
        _remove(temporary)


def is_partial(path: Path) -> bool:
    """Whether a file or folder is what a killed write left."""
    return path.name.startswith(".") and path.name.endswith(".partial")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
