"""`ddte evaluate`: selectors of runs or of exported checkpoints on held-out prompts, on one machine or on several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from warnings import warn

from selector.cli.next_command import beside, print_next
from selector.config import EvaluateConfig
from selector.errors import UserError


def evaluate(
    data: Path,
    out: Path,
    evaluate: EvaluateConfig,
    given: Sequence[str],
    run: Path | list[Path] | None = None,
    checkpoint: Path | list[Path] | None = None,
    test_data: Path | None = None,
    profile: Path | list[Path] | None = None,
) -> None:
    """Evaluate selectors on held-out prompts: metrics.json and an HTML report.

    Args:
        data: the data set that the run was trained on; the static trees are chosen on its training prompts.
        out: the new folder of metrics.json and report.html.
        run: a run folder of `ddte train`, or a list of several that differ in their seeds.
        checkpoint: an exported checkpoint or a list of them, in place of a run; `test_data` is then needed.
        test_data: another data set to score on (default: held-out prompts of the run).
        profile: another machine's pass times (default: those of training), or a list: the report is about the first
            machine, and its map compares all.
    """
    from selector.artifacts.claims import claim_folder
    from selector.dataset.dataset import RootDataset
    from selector.evaluation.console import print_map, print_rows
    from selector.evaluation.evaluate import evaluate as evaluate_selectors
    from selector.network.checkpoint import SelectorCheckpoint

    claim_folder("out", out)
    if (run is None) == (checkpoint is None):
        raise UserError(f"run and checkpoint are {'both' if run else 'neither'} given: name one or the other.")
    if checkpoint is not None and test_data is None:
        raise UserError("test_data is left out: a checkpoint does not say which prompts were held out, so give some.")
    runs = _runs(_listed("run", run)) if run is not None else []
    checkpoints = [one.selector(verifier) for one in runs for verifier in one.verifiers]
    checkpoints += [SelectorCheckpoint.load(path) for path in _listed("checkpoint", checkpoint)] if checkpoint else []
    trained = runs[0].profile if runs else checkpoints[0].profile
    times = _profiles(_listed("profile", profile)) if profile is not None else trained
    own = RootDataset.load(data)
    for one in runs:
        one.check_data(own.manifest)
    if test_data:
        test = RootDataset.load(test_data)
        scored, known = set(test.prompt_ids), {name for one in runs for name in one.splits.train}
        if seen := len(scored & known):
            warn(f"{seen} of the {len(scored)} prompts of test_data are training prompts of the run.", stacklevel=2)
        rows = evaluate_selectors(checkpoints, test, times, evaluate, out, training=own)
    else:
        rows = evaluate_selectors(checkpoints, own, times, evaluate, out, test_prompts=runs[0].splits.test)
    print_rows(rows)
    print_map(out / "map.json")
    print(f"Report: {out / 'report.html'}")
    if runs:
        print_next("export", given, run=runs[0].path, metrics=out / "metrics.json", out=beside(out, "checkpoints"))


def _listed(field: str, paths: Path | list[Path]) -> list[Path]:
    """One or more different paths."""
    found = paths if isinstance(paths, list) else [paths]
    if not found:
        raise UserError(f"{field} is []: name one or more.")
    for place, path in enumerate(found):
        if path.resolve() in [other.resolve() for other in found[:place]]:
            raise UserError(f"{field} names '{path}' twice: it counts once.")
    return found


def _runs(paths: Sequence[Path]) -> list[Any]:  # a `RunFolder` each: named here, `--help` would load torch for it
    """Run folders with the same test prompts."""
    from selector.training.run_folder import RunFolder

    runs = [RunFolder(path) for path in paths]
    for other in runs[1:]:
        if other.splits.test != runs[0].splits.test:
            message = f"run '{other.path}' has other test prompts than '{runs[0].path}'"
            raise UserError(f"{message}: train with one split_seed.")
    return runs


def _profiles(paths: Sequence[Path]) -> dict[str, Any]:  # a `LatencyProfile` each
    """Pass times by the names of their files."""
    from selector.latency import LatencyProfile

    found = {path.stem: LatencyProfile.load(path) for path in paths}
    if len(found) < len(paths):
        raise UserError(
            f"profile is {[str(path) for path in paths]}: give files of different names, which the map shows."
        )
    return found
