"""Whether the fields of a JSON artefact have values that can be meant; a ValueError names the first that has not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from selector.trees.expansion import ActionSpace


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """A whole number of `least` or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}, not a whole number of {least} or more")


def check_number(name: str, value: Any) -> None:
    """A number, of either kind."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not a number")


def check_texts(name: str, value: Any) -> None:
    """A list of texts."""
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValueError(f"{name} is {value!r}, not a list of texts")


def check_dict(name: str, value: Any, keys: Iterable[str] = ()) -> None:
    """A dict that has `keys`."""
    if not isinstance(value, dict) or not all(key in value for key in keys):
        raise ValueError(f"{name} is {value!r}, not an object" + "".join(f" with {key}" for key in keys))


def checked_space(name: str, value: Any) -> tuple[int, int, int]:
    """The limits of an action space, as a tuple."""
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        raise ValueError(f"{name} is {value!r}, not (K, L1, L2)")
    for limit in value:
        check_whole(name, limit, 0)
    branches, trunk, length = value
    ActionSpace(branches, trunk, length)
    return branches, trunk, length
