"""This machine's pass times, measured once for a pair and kept in the user's cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from selector.artifacts import content_hash
from selector.config import Limits
from selector.decoding.profiling import describe_machine, machine_kind, measure_profile
from selector.engine.embedded import cache_folder
from selector.engine.huggingface import Pair
from selector.latency import LatencyProfile

FOREIGN = (
    "the checkpoint's pass times are of another machine or type ({theirs}), not of this one ({here}), and decide which "
    "trees pay: measure this machine's with `ddte profile`, and give them as the profile."
)
TRIES = 3  # a profile that other work disturbed is measured again


def measure_undisturbed(
    pair: Pair, action_space: Limits, inputs: Literal["all", "root"], say: Callable[[str], None]
) -> LatencyProfile:
    """A profile of this machine; one that other work disturbed is measured again, and the last one is kept."""
    for left in reversed(range(TRIES)):
        profile = measure_profile(pair, action_space=action_space, inputs=inputs)
        disturbance = profile.disturbance()
        if disturbance is None:
            break
        say(f"Disturbed: {disturbance}" + (" Measuring again." if left else ""))
    return profile


def machine_profile(
    pair: Pair, action_space: Limits, inputs: Literal["all", "root"], say: Callable[[str], None]
) -> LatencyProfile:
    """The kept profile of this pair, type, device, threads and versions; measured now where there is none.

    `say` is told before the measurement starts, which takes seconds on small models.
    """
    machine = describe_machine(pair)
    key = content_hash({"machine": machine, "action_space": list(action_space), "inputs": inputs})[:16]
    path = cache_folder() / "profiles" / f"{key}.json"
    if path.is_file():
        return LatencyProfile.load(path)
    say(f"Measuring this machine's pass times with this pair, once (about half a minute); kept as {path}.")
    profile = measure_undisturbed(pair, action_space, inputs, say)
    path.parent.mkdir(parents=True, exist_ok=True)
    profile.save(path)
    return profile


def foreign_times(profile: LatencyProfile, pair: Pair) -> str | None:
    """A sentence where a profile was measured on another device, with other threads or in another type; else None."""
    here = machine_kind(pair)
    if all(profile.machine.get(name) == value for name, value in here.items()):
        return None
    theirs = ", ".join(str(profile.machine.get(name, "unknown")) for name in here)
    return FOREIGN.format(theirs=theirs, here=", ".join(map(str, here.values())))
