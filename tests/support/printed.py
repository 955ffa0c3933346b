"""Commands as a reader of the terminal would paste them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable


def printed_commands(text: str) -> list[list[str]]:
    """The words of each line that is a title and a command of ddte, as a shell splits them."""
    return [shlex.split(found) for found in re.findall(r"^\w+: +(ddte .*)$", text, re.MULTILINE)]


def follow(first: list[str], run: Callable[[list[str]], str]) -> list[list[str]]:
    """Run a command, then every one that is printed; all of them in order. `run` gives what a command printed."""
    ran, left = list[list[str]](), [first]
    while left:
        ran.append(left.pop(0))
        left += printed_commands(run(ran[-1]))
    return ran
