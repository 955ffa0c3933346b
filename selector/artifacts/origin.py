"""What an artefact was made with, and what it holds: package versions, the git revision, content hashes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

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
    """Commit of the source tree that this package runs from, `-dirty` if it has changes; `` outside of git.

    An installed package may lie in a repository of its user's, which does not track it and says nothing of it.
    """
    file = Path(__file__)
    if not _git(file.parent, "ls-files", file.name):
        return ""
    return _git(file.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(folder: Path, *arguments: str) -> str:
    try:
        answer = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def content_hash(data: Any) -> str:
    """SHA-256 of a JSON value in its canonical form, 64 hex digits."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
