"""Commands that verbs print for what comes next: they hold the configuration that was given, and work when pasted."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from selector.cli.parser import SECTIONS

QUESTION = "Why is the sky blue?"


def configuration_words(words: Sequence[str]) -> list[str]:
    """Of a command line, `--config` and the flags of sections with their values, which every verb takes."""
    kept, wanted = list[str](), False
    for word in words:
        if word.startswith("--"):
            wanted = word[2:].partition("=")[0].partition(".")[0] in ("config", *SECTIONS)
        if wanted:
            kept.append(word)
    return kept


def command(verb: str, given: Sequence[str], **flags: object) -> str:
    """`ddte VERB` with the words `given` and flags of its own, quoted for a shell."""
    own = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    return shlex.join(["ddte", verb, *given, *own])


def print_next(verb: str, given: Sequence[str], **flags: object) -> None:
    """Print it on a line of its own."""
    print(f"Next: {command(verb, given, **flags)}")


def sibling(place: Path, name: str) -> Path:
    """`name` in the folder that holds `place`."""
    return (place if place.name else place.absolute()).parent / name


def beside(place: Path, name: str) -> Path:
    """The sibling `name` of `place`, or `name-2` and so on: one where nothing lies yet."""
    stem, suffix = Path(name).stem, Path(name).suffix
    names = (f"{stem}-{number}{suffix}" if number > 1 else name for number in count(1))
    return next(path for path in (sibling(place, name) for name in names) if not path.exists())
