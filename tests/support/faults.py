"""Faults at every write in turn: below a folder, the n-th change of the file system ends the process or fills the disk.

Python announces each change before it is made (PEP 578), so that nothing has to be slept for or patched. A write of
native code (arrow, safetensors) lies between two announced ones: its temporary file is made whole or half by the
fault at the renaming that follows.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from selector.errors import UserError

PLACES = {"os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.remove": 0, "os.rmdir": 0, "os.truncate": 0}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEEDING_ROOM = ("open", "os.mkdir", "os.link")
Kind = Literal["kill", "full"]


class Killed(BaseException):
    """Stands for the end of the process."""


@dataclass
class Fault:
    """The fault at write number `at` below `folder`; 0 for none. `writes` counts those that it could happen at."""

    folder: str
    at: int
    kind: Kind
    writes: int = 0
    happened: bool = False

    def announced(self, event: str, path: str) -> None:
        if self.kind == "full" and event not in NEEDING_ROOM:
            return
        self.writes += 1
        if self.happened or self.writes == self.at:
            first, self.happened = not self.happened, True
            if self.kind == "full":
                raise OSError(errno.ENOSPC, "No space left on device", path)
            if first and event == "os.rename":
                _tear(path)
            raise Killed  # what is dead writes and tidies nothing any more


_fault: list[Fault] = []


def _tear(path: str) -> None:
    """The temporary file of `path` holds its first half only."""
    temporary = Path(path).with_name(f".{Path(path).name}.partial")
    if temporary.is_file():
        fault, _fault[:] = _fault[:], []
        os.truncate(temporary, temporary.stat().st_size // 2)
        _fault[:] = fault


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _fault or (event != "open" and event not in PLACES):
        return
    path = arguments[PLACES.get(event, 0)]
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING):
        return
    if isinstance(path, (str, os.PathLike)):
        absolute = os.path.abspath(path)
        if absolute.startswith(_fault[0].folder):
            _fault[0].announced(event, absolute)


sys.addaudithook(_hook)


@contextmanager
def fault(folder: Path, at: int, kind: Kind) -> Iterator[Fault]:
    _fault[:] = [Fault(str(folder) + os.sep, at, kind)]
    try:
        yield _fault[0]
    finally:
        _fault.clear()


def survives_every_fault(
    folder: Path, kind: Kind, run: Callable[[Path], object], read: Callable[[Path], object], fewest: int
) -> None:
    """After a fault at any write the same call makes what an undisturbed one makes, and leaves nothing torn behind.

    `run` writes below the folder that it is given, and `read` gives what counts of it. A full disk is one sentence.
    """
    (folder / "whole").mkdir()
    with fault(folder / "whole", 0, kind) as none:
        run(folder / "whole")
    expected = read(folder / "whole")
    assert none.writes >= fewest
    for at in range(1, none.writes + 1):
        place = folder / f"{kind} at {at}"
        place.mkdir()
        with fault(place, at, kind) as one, suppress(Killed, UserError):
            run(place)
        assert one.happened, f"{kind} at write {at}"
        with suppress(UserError):  # the last write was done: a verb that overwrites nothing says so
            run(place)
        assert read(place) == expected, f"{kind} at write {at}"
        assert not [path for path in place.rglob(".*") if path.suffix == ".partial"], f"{kind} at write {at}"
