"""From a data set to checkpoints: `ddte train` and `ddte export`; and `ddte run`, the whole chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from selector.cli.next_command import QUESTION, beside, print_next
from selector.config import Config, TrainConfig


def train(data: Path, profile: Path, out: Path, train: TrainConfig, given: Sequence[str]) -> None:
    """Train selectors on a data set (Lightning), one a verifier.

    Args:
        data: a data set made by `ddte generate`.
        profile: pass times made by `ddte profile`.
        out: the run folder; an interrupted run goes on.
    """
    from selector.artifacts.claims import check_place
    from selector.latency import LatencyProfile
    from selector.training.fit import leads
    from selector.training.fit import train as train_selectors

    check_place("out", out)
    train_selectors(data, LatencyProfile.load(profile), train, out)
    if leads():
        print_next("evaluate", given, run=out, data=data, out=beside(out, "report"))


def export(run: Path, out: Path, given: Sequence[str], metrics: Path | None = None, hub_code: bool = False) -> None:
    """Write the selectors of a run as checkpoint folders for decoding.

    Args:
        run: a run folder of `ddte train`.
        out: folder that gets one checkpoint a verifier.
        metrics: metrics.json of `ddte evaluate`, for the figures of the model cards.
        hub_code: add the code by which a folder works as `generate(custom_generate=FOLDER, trust_remote_code=True)`.
    """
    from selector.artifacts.claims import check_place
    from selector.training.export import export as export_run

    check_place("out", out)
    folders = export_run(run, out, metrics, hub_code)
    for folder in folders:
        print(f"Checkpoint: {folder}")
    print_next("decode", given, checkpoint=_recommended(folders, metrics), prompt=QUESTION)


def _recommended(folders: Sequence[Path], metrics: Path | None) -> Path:
    """The checkpoint of the verifier that the report recommends; the first one where nothing was measured."""
    from selector.artifacts.loading import read_json
    from selector.evaluation.report.prose import combinations
    from selector.training.export import METRICS_REMEDY

    rows = read_json(metrics, METRICS_REMEDY) if metrics else []
    try:
        order = [one.verifier for one in combinations(rows)]
    except KeyError:  # figures of somebody's own, enough for a card and not for a choice
        order = []
    return min(folders, key=lambda folder: order.index(folder.name) if folder.name in order else len(order))


def run(config: Config, out: Path, given: Sequence[str]) -> None:
    """The whole chain from one configuration; each stage skips what is already there.

    Args:
        out: folder of the whole run; an interrupted one goes on.
    """
    from selector.cli.run import run_chain

    run_chain(config, out, given=given)
