"""From a data set to checkpoints: `ddte train`, `ddte evaluate` and `ddte export`; and `ddte run`, the whole chain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from selector.cli.parser import resolve_config
from selector.errors import UserError


def train_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="a data set made by `ddte generate`")
    parser.add_argument("--profile", type=Path, required=True, help="pass times made by `ddte profile`")
    parser.add_argument("--out", type=Path, required=True, help="the run folder; an interrupted run goes on")


def train(arguments: Any) -> None:
    """Train selectors on `data` into the run folder `out`."""
    from selector.latency import LatencyProfile
    from selector.training.fit import train as train_selectors

    train_selectors(arguments.data, LatencyProfile.load(arguments.profile), arguments.train, arguments.out)


def evaluate_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--run", type=Path | list[Path], required=True, help="a run folder of `ddte train`, or several seeds' in a list"
    )
    parser.add_argument("--data", type=Path, required=True, help="the data set that the run was trained on")
    parser.add_argument(
        "--test-data", type=Path, default=None, help="another data set to score on (default: held-out prompts)"
    )
    parser.add_argument("--profile", type=Path, default=None, help="another machine's pass times (default: the run's)")
    parser.add_argument("--out", type=Path, required=True, help="folder of metrics.json and report.html")


def evaluate(arguments: Any) -> None:
    """Score selectors and write metrics.json and report.html into the new folder `out`; several runs are seeds."""
    from selector.artifacts import check_place
    from selector.dataset.records import RootDataset
    from selector.evaluation.console import print_rows
    from selector.evaluation.evaluate import evaluate as evaluate_selectors
    from selector.latency import LatencyProfile
    from selector.network.checkpoint import refuse_occupied
    from selector.training.run_folder import RunFolder

    refuse_occupied(arguments.out)
    check_place("out", arguments.out)
    folders = arguments.run if isinstance(arguments.run, list) else [arguments.run]
    if not folders:
        raise UserError("run is []: name one run folder or more.")
    for place, folder in enumerate(folders):
        if folder.resolve() in [other.resolve() for other in folders[:place]]:
            raise UserError(f"run names '{folder}' twice: a seed counts once.")
    runs = [RunFolder(path) for path in folders]
    run = runs[0]
    for other in runs[1:]:
        if other.splits.test != run.splits.test:
            raise UserError(f"run '{other.path}' has other test prompts than '{run.path}': train with one split_seed.")
    checkpoints = [run.selector(verifier) for run in runs for verifier in run.verifiers]
    times = LatencyProfile.load(arguments.profile) if arguments.profile else run.profile
    data = RootDataset.load(arguments.data)
    if arguments.test_data:
        test = RootDataset.load(arguments.test_data)
        rows = evaluate_selectors(checkpoints, test, times, arguments.evaluate, arguments.out, training=data)
    else:
        prompts = run.splits.test
        rows = evaluate_selectors(checkpoints, data, times, arguments.evaluate, arguments.out, test_prompts=prompts)
    print_rows(rows)
    print(f"Report: {arguments.out / 'report.html'}")


def export_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, required=True, help="a run folder of `ddte train`")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets one checkpoint a verifier")
    parser.add_argument("--metrics", type=Path, default=None, help="metrics.json for the model cards")


def export(arguments: Any) -> None:
    """Write a run's selectors as checkpoint folders below `out`."""
    from selector.training.export import export as export_run

    for folder in export_run(arguments.run, arguments.out, arguments.metrics):
        print(f"Checkpoint: {folder}")


def run_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="folder of the whole run; an interrupted one goes on")


def run(arguments: Any) -> None:
    """Run all stages into `out`."""
    from selector.cli.run import run_chain

    run_chain(resolve_config(arguments), arguments.out)
