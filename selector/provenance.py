"""Where pass times come from, in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Provenance:
    """Where pass times come from, in words; empty where that was not recorded.

    Attributes:
        kind: `measured`, or `fitted`: taken from a formula that somebody fitted to measurements.
        target, draft: the models.
        hardware, engine: what passes ran on, and the program that ran them.
        source: what measured the times, or where they were published.
        note: what else is to be known: extrapolated, assumed, changed since.
    """

    kind: Literal["measured", "fitted"] = "measured"
    target: str = ""
    draft: str = ""
    hardware: str = ""
    engine: str = ""
    source: str = ""
    note: str = ""


def hardware_words(machine: Mapping[str, Any]) -> str:
    """Device, threads and type of a profile's `machine`."""
    parts = [str(machine.get("device", "a machine that was not recorded"))]
    parts += [f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"] if "threads" in machine else []
    return ", ".join(parts + ([str(machine["dtype"])] if "dtype" in machine else []))
