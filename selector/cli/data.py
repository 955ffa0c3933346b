"""What a selector is trained from: `ddte distill`, `ddte profile` and `ddte generate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from selector.cli.next_command import beside, print_next, sibling
from selector.config import ActionSpaceConfig, Config, PairConfig, TrainConfig
from selector.errors import UserError

if TYPE_CHECKING:
    from selector.dataset.manifest import Manifest

DATA, PROFILE = "data", "profile.json"


def distill(config: Config, out: Path, given: Sequence[str], work: Path | None = None) -> None:
    """Make an early-exit draft for a target; an interrupted run goes on.

    Args:
        out: the draft folder.
        work: folder of the sampled text and the training state (default: OUT.work).
    """
    from data_gen.distillation.pipeline import distill as distill_draft

    distill_draft(config, out, work or out.with_name(out.name + ".work"))
    print_next("generate", [*given, "--pair.draft", str(out)], out=beside(out, DATA))


def profile(
    out: Path,
    pair: PairConfig,
    action_space: ActionSpaceConfig,
    train: TrainConfig,
    given: Sequence[str],
    shapes_of: str | None = None,
) -> None:
    """Measure this machine's pass times.

    Args:
        out: the profile's JSON file.
        shapes_of: a target by hub id, folder or config.json, in the place of `pair.target`: random models of its
            shape and of that of `pair.draft` are timed, a few layers of each, so that no weights are needed.
    """
    from selector.artifacts.claims import check_place
    from selector.cli.profile_table import print_profile
    from selector.decoding.pass_times import measure_undisturbed
    from selector.decoding.profiling import measure_profile
    from selector.decoding.shape_times import measure_shapes
    from selector.engine.huggingface import load_pair

    if out.exists():
        raise UserError(f"out is {str(out)!r}, which exists already: give another place, or remove it.")
    check_place("out", out)
    limits, inputs = action_space.limits, train.inputs
    if shapes_of is None:
        measure = partial(measure_profile, load_pair(pair), action_space=limits, inputs=inputs)
    else:
        measure = partial(measure_shapes, replace(pair, target=shapes_of), action_space=limits, inputs=inputs)
    measured = measure_undisturbed(measure)
    measured.save(out)
    print_profile(measured)
    print(f"Pass times of this machine: {out}")
    if shapes_of is None and not sibling(out, DATA).exists():  # one who has data has read how to go on
        print_next("generate", given, out=sibling(out, DATA))


def generate(
    config: Config,
    given: Sequence[str],
    out: Path | None = None,
    engine: Literal["local", "ray"] = "local",
    workers: int = 0,
    check: Path | None = None,
    merge: list[Path] | None = None,
) -> None:
    """Make training data: run a pair of models over prompts, record features and labels of roots.

    Args:
        out: the data set's folder; an interrupted one goes on.
        engine: who does the work.
        workers: Ray's replicas of the pair; 0 takes one a GPU, or two.
        check: validate this data set and make none.
        merge: make OUT of these data sets.
    """
    if check:
        from data_gen.checking import check_data_set

        check_data_set(check)
        return
    if out is None:
        raise UserError("out is left out: give the data set's folder.")
    if merge:
        from data_gen.merging import merge as merge_data

        manifest = merge_data(merge, out)
    else:
        from data_gen.pipeline import generate as generate_data

        manifest = generate_data(config, out, engine=engine, workers=workers)
    _print_training(manifest, out, config.train.verifiers, given)


def _print_training(manifest: Manifest, data: Path, verifiers: Sequence[str], given: Sequence[str]) -> None:
    """How to train on a data set, with the pass times beside it, or the command that measures them first."""
    profile = sibling(data, PROFILE)
    if not _fits(profile, manifest):
        profile = beside(data, PROFILE)
        print_next("profile", given, out=profile)
    trained = [name for name in verifiers if name in manifest.verifiers] or manifest.verifiers
    own = [] if trained == list(verifiers) else ["--train.verifiers", f"[{','.join(trained)}]"]
    print_next("train", [*given, *own], data=data, profile=profile, out=beside(data, "train"))


def _fits(profile: Path, manifest: Manifest) -> bool:
    """Whether these are pass times of the data set's pair."""
    from selector.latency import LatencyProfile

    try:
        LatencyProfile.load(profile).check_pair(manifest.target_fingerprint, manifest.draft_fingerprint)
    except UserError:
        return False
    return True
