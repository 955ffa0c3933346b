"""This machine's pass times: measured once for a pair, kept in the user's cache, and taken for decoding."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from selector.artifacts.claims import sole_writer
from selector.artifacts.origin import content_hash
from selector.config import Inputs, Limits
from selector.decoding.profiling import WIDTHS, describe_machine, machine_kind, measure_profile
from selector.engine.embedded import cache_folder
from selector.engine.huggingface import Pair
from selector.errors import UserError
from selector.latency import SCHEMA, LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.trees.expansion import ActionSpace

PassTimes = LatencyProfile | Literal["machine", "checkpoint"]
FOREIGN = (
    "{what} has pass times of another kind ({differences}), and they decide which trees pay: leave `profile` out to "
    "take this machine's."
)
PLACEMENT = ("attn_implementation", "draft_device", "max_memory")  # of a pair's configuration: they change pass times
SHORT = (64, 512)  # contexts of a kept profile, which is measured while somebody waits
TRIES = 3  # a profile that other work disturbed is measured again


def tell(sentence: str) -> None:
    """Say something on standard error, so that output stays what was asked for."""
    print(sentence, file=sys.stderr)


def decoding_times(
    given: PassTimes, pair: Pair, checkpoint: SelectorCheckpoint, say: Callable[[str], None] = tell
) -> LatencyProfile:
    """The pass times that decide in decoding: `given`, the checkpoint's, or this machine's.

    With `machine` those of the checkpoint serve where they are of this machine, pair, type and threads; otherwise
    `machine_profile`. Other times than this machine's are taken with a warning. Raises UserError for another word, and
    for a profile of another pair.
    """
    if isinstance(given, LatencyProfile):
        given.check_pair(pair.target.fingerprint, pair.draft.fingerprint)
        profile, what = given, "the profile"
    elif given in ("machine", "checkpoint"):
        profile, what = checkpoint.profile, "the checkpoint"
    else:
        raise UserError(f"profile is {given!r}: give a LatencyProfile, 'machine' or 'checkpoint'.")
    differences = foreign_times(profile, pair)
    if differences is None:
        return profile
    if given == "machine":
        shape = checkpoint.config.shape
        return machine_profile(pair, shape.action_space, shape.inputs, say)
    warnings.warn(FOREIGN.format(what=what, differences=differences), stacklevel=3)
    return profile


def machine_profile(
    pair: Pair, action_space: Limits, inputs: Inputs, say: Callable[[str], None] = tell
) -> LatencyProfile:
    """The kept profile of this pair, type, placement, device, threads and versions; measured where there is none.

    `say` is told before and after the measurement. A kept one that other work had disturbed is named in a warning.
    """
    place = [str(getattr(pair.config, name)) for name in PLACEMENT]
    key = content_hash([SCHEMA, describe_machine(pair), place, list(action_space), inputs])[:16]
    path = cache_folder() / "profiles" / f"{key}.json"
    if not path.is_file():
        say(f"Measuring this machine's pass times with this pair, once; kept as {path}.")
        with sole_writer("DDTE_CACHE", path, wait=True):  # two that measure would be in each other's way
            if not path.is_file():
                _measure_into(path, pair, action_space, inputs, say)
    profile = LatencyProfile.load(path)
    if disturbance := profile.disturbance():
        doubt = disturbance.split(":")[0]
        warnings.warn(f"pass times in {path} are doubtful ({doubt}): remove the file to measure again.", stacklevel=2)
    return profile


def _measure_into(path: Path, pair: Pair, action_space: Limits, inputs: Inputs, say: Callable[[str], None]) -> None:
    start, rows = time.perf_counter(), max(action.width for action in ActionSpace(*action_space).expansions)
    widths = [width for width, narrower in zip(WIDTHS, (0, *WIDTHS), strict=False) if narrower < rows]
    measure = partial(measure_profile, pair, SHORT, widths, action_space=action_space, inputs=inputs)
    measure_undisturbed(measure, say).save(path)
    say(f"Measured in {time.perf_counter() - start:.0f} s.")


def measure_undisturbed(measure: Callable[[], LatencyProfile], say: Callable[[str], None] = tell) -> LatencyProfile:
    """What `measure` gives; where other work disturbed it, once more, and at last what there is."""
    for left in reversed(range(TRIES)):
        profile = measure()
        disturbance = profile.disturbance()
        if disturbance is None:
            break
        say(f"Disturbed: {disturbance}" + (" Measuring again." if left else ""))
    return profile


def foreign_times(profile: LatencyProfile, pair: Pair) -> str | None:
    """How a profile's machine, threads, type or pair differ from those at hand, in words; None where they do not."""
    here = machine_kind(pair) | {"target": pair.target.fingerprint, "draft": pair.draft.fingerprint}
    there = {name: profile.machine[name] for name in here if name in profile.machine}
    differences = [f"{name} is {value}, here {here[name]}" for name, value in there.items() if value != here[name]]
    missing = [f"{name} is not recorded" for name in here if name not in there]
    return "; ".join(differences or missing) or None
