"""From a data set to checkpoints: `ddte train`, `ddte evaluate` and `ddte export`; and `ddte run`, the whole chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from warnings import warn

from selector.config import Config, EvaluateConfig, TrainConfig
from selector.errors import UserError


def train(data: Path, profile: Path, out: Path, train: TrainConfig) -> None:
    """Train selectors on a data set (Lightning), one a verifier.

    Args:
        data: a data set made by `ddte generate`.
        profile: pass times made by `ddte profile`.
        out: the run folder; an interrupted run goes on.
    """
    from selector.artifacts.claims import check_place
    from selector.latency import LatencyProfile
    from selector.training.fit import train as train_selectors

    check_place("out", out)
    train_selectors(data, LatencyProfile.load(profile), train, out)


def evaluate(
    run: Path | list[Path],
    data: Path,
    out: Path,
    evaluate: EvaluateConfig,
    test_data: Path | None = None,
    profile: Path | None = None,
) -> None:
    """Evaluate selectors on held-out prompts: metrics.json and an HTML report.

    Args:
        run: a run folder of `ddte train`, or a list of several that differ in their seeds.
        data: the data set that the run was trained on.
        out: the new folder of metrics.json and report.html.
        test_data: another data set to score on (default: held-out prompts).
        profile: another machine's pass times (default: the run's).
    """
    from selector.artifacts.claims import claim_folder
    from selector.dataset.dataset import RootDataset
    from selector.evaluation.console import print_rows
    from selector.evaluation.evaluate import evaluate as evaluate_selectors
    from selector.latency import LatencyProfile
    from selector.training.run_folder import RunFolder

    claim_folder("out", out)
    folders = run if isinstance(run, list) else [run]
    if not folders:
        raise UserError("run is []: name one run folder or more.")
    for place, folder in enumerate(folders):
        if folder.resolve() in [other.resolve() for other in folders[:place]]:
            raise UserError(f"run names '{folder}' twice: a seed counts once.")
    runs = [RunFolder(path) for path in folders]
    for other in runs[1:]:
        if other.splits.test != runs[0].splits.test:
            message = f"run '{other.path}' has other test prompts than '{runs[0].path}'"
            raise UserError(f"{message}: train with one split_seed.")
    checkpoints = [one.selector(verifier) for one in runs for verifier in one.verifiers]
    times = LatencyProfile.load(profile) if profile else runs[0].profile
    own = RootDataset.load(data)
    for one in runs:
        one.check_data(own.manifest)
    if test_data:
        test = RootDataset.load(test_data)
        scored, trained = set(test.prompt_ids), {name for one in runs for name in one.splits.train}
        if seen := len(scored & trained):
            warn(f"{seen} of the {len(scored)} prompts of test_data are training prompts of the run.", stacklevel=2)
        rows = evaluate_selectors(checkpoints, test, times, evaluate, out, training=own)
    else:
        rows = evaluate_selectors(checkpoints, own, times, evaluate, out, test_prompts=runs[0].splits.test)
    print_rows(rows)
    print(f"Report: {out / 'report.html'}")


def export(run: Path, out: Path, metrics: Path | None = None, hub_code: bool = False) -> None:
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
    for folder in export_run(run, out, metrics, hub_code):
        print(f"Checkpoint: {folder}")


def run(config: Config, out: Path, config_file: Sequence[object] | None = None) -> None:
    """The whole chain from one configuration; each stage skips what is already there.

    Args:
        out: folder of the whole run; an interrupted one goes on.
    """
    from selector.cli.run import run_chain

    run_chain(config, out, config_files=config_file or ())
