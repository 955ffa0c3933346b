"""Claims of places to write to: what may be written, by whom, and whether what lies there is of this very run."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from selector.artifacts.writing import as_json, is_partial
from selector.errors import UserError

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


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
    if not all(is_partial(path) or path.name in beside for path in folder.iterdir()):
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
