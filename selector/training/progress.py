"""What training tells the person in front of the screen."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from selector.network.checkpoint_config import CheckpointConfig
from selector.offline.baselines import OracleGap
from selector.training.data import RootDataModule
from selector.training.module import MONITOR


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


def print_gaps(console: Console, gaps: dict[str, OracleGap]) -> None:
    """What there is to learn, before it is tried."""
    table = Table("verifier", "best static", "tokens/s", "oracle gap", "same samples", title="Before training")
    for verifier, gap in gaps.items():
        row = (str(gap.best_static), f"{gap.throughput:.2f}", f"{gap.gap:+.1%}", f"{gap.optimistic:+.1%}")
        table.add_row(verifier, *row)
    console.print(table)
    for verifier, gap in gaps.items():
        console.print(f"{verifier}: {gap.sentence()}")


def print_results(console: Console, configs: dict[str, CheckpointConfig]) -> None:
    """The selectors on the validation prompts."""
    table = Table("verifier", "head", "tokens/s", "best static", "ratio", title="Selectors on validation prompts")
    for verifier, config in configs.items():
        metrics = config.metrics
        realised = metrics[f"validation_throughput_{config.default_head}"]
        static = metrics["validation_throughput_static"]
        ratio = metrics["validation_ratio_to_static"]
        table.add_row(verifier, config.default_head, f"{realised:.2f}", f"{static:.2f}", f"{ratio:.3f}")
    console.print(table)
    for verifier, config in configs.items():
        console.print(f"{verifier}: {_kept(config.metrics)}")


def _kept(metrics: dict[str, float]) -> str:
    if not metrics["learned"]:
        return "nothing beat the best static action on the validation prompts, so the selector chooses as that does."
    if not metrics["corrected"]:
        return (
            "the linear model is kept: no epoch of the network beat it by more than two standard errors over "
            "validation prompts."
        )
    return "the network is kept: it beat its linear model by more than two standard errors over validation prompts."
