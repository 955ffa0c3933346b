"""Writes are whole or absent."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from selector.artifacts.writing import atomic_write


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_written_is_whole_or_absent(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "new" / "x"

    def write(text: str, fault: bool = False) -> None:
        with atomic_write(path) as temporary:
            if kind == "folder":
                temporary.mkdir()
            (temporary / "y" if kind == "folder" else temporary).write_text(text)
            if fault:
                raise Killed

    with pytest.raises(Killed):
        write("one", fault=True)
    assert not list(path.parent.iterdir())
    (path.parent / ".x.partial").mkdir()
    (path.parent / ".x.partial" / "torn").write_text("half")
    write("two")
    assert list(files(path.parent).values()) == [b"two"]
    if kind == "folder":
        with pytest.raises(OSError, match="not empty"):
            write("three")
        assert list(files(path.parent).values()) == [b"two"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_write_goes_through_a_link(tmp_path: Path, kind: str) -> None:
    goal, link = tmp_path / "elsewhere" / "x", tmp_path / "link"
    link.symlink_to(goal)
    for _ in range(2):  # of a folder, the second time an empty one
        with atomic_write(link) as temporary:
            temporary.mkdir() if kind == "folder" else temporary.write_text("new")
        assert link.is_symlink()
        assert goal.is_dir() if kind == "folder" else goal.read_text() == "new"
        assert [path.name for path in goal.parent.iterdir()] == ["x"]


def test_a_write_without_room_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No space left on device: '.*rows\.json'"), atomic_write(tmp_path / "rows.json"):
        raise OSError(errno.ENOSPC, "No space left on device")
