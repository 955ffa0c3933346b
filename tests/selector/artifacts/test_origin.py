"""The revision that artefacts are stamped with: of this package's source, not of what surrounds an installed one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from selector.artifacts import origin


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize("tracked", [True, False])
def test_a_repository_that_does_not_track_the_package_names_no_revision(
    tracked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages"
    package.mkdir()
    (tmp_path / "notes.txt").write_text("of the user's own work")
    (package / "origin.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "notes.txt", *(["site-packages"] if tracked else []))
    git(tmp_path, "commit", "-q", "-m", "first")
    monkeypatch.setattr(origin, "__file__", str(package / "origin.py"))
    assert bool(origin.git_revision()) == tracked
