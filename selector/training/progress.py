"""Progress and results of training on the terminal."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from selector.dataset.dataset import RootDataset
from selector.network.checkpoint import SelectorCheckpoint
from selector.offline.baselines import OracleGap
from selector.training.data import RootDataModule
from selector.training.module import MONITOR
from selector.training.selection import Model
from selector.training.splits import Splits


class EpochProgress(pl.Callback):
    """A bar over the epochs with the throughput on validation prompts against the best static action's."""

    def __init__(self, console: Console, data: RootDataModule) -> None:
        self.data = data
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs, {task.fields[ratio]} of best static"),
            TimeRemainingColumn(),
            console=console,
        )
        self.task = self.bar.add_task(f"train {data.verifier}", total=data.config.max_epochs, ratio="-")

    def __enter__(self) -> EpochProgress:
        self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        ratio = float(trainer.callback_metrics[MONITOR]) / self.data.static_throughput
        self.bar.update(self.task, completed=trainer.current_epoch + 1, ratio=f"{ratio:.3f}")

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Early stopping ends the bar where it stands."""
        self.bar.update(self.task, total=trainer.current_epoch, completed=trainer.current_epoch)


def print_splits(console: Console, splits: Splits, dataset: RootDataset) -> None:
    """The parts, and the sampling settings that one of them lacks, on which it can say nothing."""
    table = Table("part", "prompts", "roots", "settings that it lacks", title="Prompts")
    for part, missing in splits.missing_settings(dataset).items():
        lacks = "; ".join(f"temperature {temperature:g}, top-p {top_p:g}" for temperature, top_p in missing)
        table.add_row(part, str(len(getattr(splits, part))), str(len(splits.rows(dataset, part))), lacks or "none")
    console.print(table)


def print_gaps(console: Console, gaps: dict[str, OracleGap]) -> None:
    """What there is to learn, before it is tried."""
    names = ("plain", "no drafting", "best static", "that tree", "oracle gap", "same samples")
    table = Table("verifier", *names, title="Before training: tokens/s, and what the best tree at each root gains")
    for verifier, gap in gaps.items():
        speeds = (f"{speed:.2f}" for speed in (gap.plain, gap.undrafted, gap.throughput))
        table.add_row(verifier, *speeds, str(gap.best_static), f"{gap.gap:+.1%}", f"{gap.optimistic:+.1%}")
    console.print(table)
    for verifier, gap in gaps.items():
        console.print(f"{verifier}: {gap.sentence()}")


def print_results(console: Console, selectors: dict[str, SelectorCheckpoint]) -> None:
    """The selectors on the validation prompts, and what decoding will run."""
    table = Table(
        "verifier", "model", "head", "tokens/s", "best static", "ratio", "runs", title="Selectors on validation prompts"
    )
    for verifier, selector in selectors.items():
        head, metrics = selector.config.default_head, selector.config.metrics
        realised, static = metrics[f"validation_throughput_{head}"], metrics["validation_throughput_static"]
        ratio, runs = metrics["validation_ratio_to_static"], "selector" if selector.beats_static else "static tree"
        table.add_row(verifier, _model(metrics), head, f"{realised:.2f}", f"{static:.2f}", f"{ratio:.3f}", runs)
    console.print(table)
    for verifier, selector in selectors.items():
        console.print(f"{verifier}: {_verdict(selector)}")
    disturbances = {selector.profile.disturbance() for selector in selectors.values()} - {None}
    for disturbance in disturbances:  # one at most: a run has one profile
        console.print(f"Trained under disturbed pass times: {disturbance}", markup=False)


def _model(metrics: dict[str, float]) -> Model:
    if not metrics["learned"]:
        return "static"
    return "mlp" if metrics["corrected"] else "ridge"


def _verdict(selector: SelectorCheckpoint) -> str:
    """Why this model was kept, and that the static tree runs where the selector did not beat it."""
    kept = {
        "static": "nothing beat the best static action on the validation prompts, so the selector chooses as that does",
        "ridge": "no epoch of the MLP beat the ridge model by more than two standard errors over validation prompts",
        "mlp": "the MLP beat its ridge model by more than two standard errors over validation prompts",
    }[_model(selector.config.metrics)]
    if selector.beats_static:
        return f"{kept}."
    return (
        f"{kept}. With its own cost it did not beat the static tree {selector.best_static}, "
        "which decoding runs in its place unless a head is named."
    )
