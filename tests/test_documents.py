"""What documents at the top say of versions, files and each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/plugging-in.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", page.read_text("utf-8")):
        assert (page.parent / link).exists(), link


def test_files_that_contributors_are_sent_to_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    paths = re.findall(r"`((?:selector|tests|data_gen|ddte|docs)/[\w./]+)`", text)
    assert len(paths) > 8
    for path in paths:
        assert (ROOT / path).exists(), path


def test_the_version_is_the_same_everywhere() -> None:
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert version
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == version[1]
    assert citation["references"][0]["url"].endswith("2602.16994")
    assert f"## {version[1]}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")
