"""What a selector is trained from: `ddte distill`, `ddte profile` and `ddte generate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from selector.cli.parser import resolve_config
from selector.errors import UserError


def distill_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="the draft folder")
    parser.add_argument("--work", type=Path, default=None, help="folder of the sampled text and the training state")


def distill(arguments: Any) -> None:
    """Make an early-exit draft in `out`; text and training state go to `work`."""
    from data_gen.distillation.pipeline import distill as distill_draft

    work = arguments.work or arguments.out.with_name(arguments.out.name + ".work")
    distill_draft(resolve_config(arguments), arguments.out, work)


def profile_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="the profile's JSON file")


def profile(arguments: Any) -> None:
    """Measure this machine's pass times and write them to the file `out`."""
    from selector.artifacts import check_place
    from selector.decoding.profiling import measure_profile
    from selector.engine.huggingface import load_pair

    refuse_existing("out", arguments.out)
    check_place("out", arguments.out)
    pair, limits = load_pair(arguments.pair), arguments.action_space.limits
    measured = measure_profile(pair, action_space=limits, inputs=arguments.train.inputs)
    measured.save(arguments.out)
    print(f"Pass times of this machine: {arguments.out}")
    if disturbance := measured.disturbance():
        print(f"Warning: {disturbance}", file=sys.stderr)


def refuse_existing(field: str, path: Path) -> None:
    """Results are never overwritten."""
    if path.exists():
        raise UserError(f"{field} is {str(path)!r}, which exists already: give another place, or remove it.")


def generate_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=None, help="the data set's folder; an interrupted one goes on")
    parser.add_argument("--engine", choices=["local", "ray"], default="local", help="who does the work")
    parser.add_argument("--workers", type=int, default=0, help="Ray's replicas of the pair (0: one a GPU, or two)")
    parser.add_argument("--check", type=Path, default=None, help="validate this data set and make none")
    parser.add_argument("--merge", type=list[Path], default=[], help="make `out` of these data sets")


def generate(arguments: Any) -> None:
    """Make or finish a data set in `out`, merge several into it, or check one."""
    if arguments.check:
        from data_gen.checking import check_data_set

        check_data_set(arguments.check)
        return
    if arguments.out is None:
        raise UserError("out is left out: give the data set's folder.")
    if arguments.merge:
        from data_gen.merging import merge

        merge(arguments.merge, arguments.out)
        return
    from data_gen.pipeline import generate as generate_data

    generate_data(resolve_config(arguments), arguments.out, engine=arguments.engine, workers=arguments.workers)
