"""Where learning curves go: always CSV; Weights & Biases and TensorBoard where asked for."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger


def build_loggers(names: Sequence[str], folder: Path, run_id: str, settings: dict[str, Any]) -> list[Logger]:
    """Loggers into `folder`; `run_id` lets a resumed run go on in the same W&B run.

    W&B is offline unless WANDB_MODE says otherwise.
    """
    loggers: list[Logger] = [CSVLogger(folder, name="csv", flush_logs_every_n_steps=1)]
    for name in names:
        if name == "wandb":
            offline = os.environ.get("WANDB_MODE", "offline") == "offline"
            wandb = WandbLogger(folder.name, folder, offline=offline, id=run_id, project="ddte", resume="allow")
            wandb.log_hyperparams(settings)
            loggers.append(wandb)
        elif name == "tensorboard":
            loggers.append(TensorBoardLogger(folder, name="tensorboard", version=""))
    return loggers


def read_curve(folder: Path) -> list[dict[str, float]]:
    """The learning curve of a verifier's folder, one row an epoch, over all starts of the run.

    An epoch that was run twice, because the first try was interrupted, is taken from the later start; a row that a
    killed process left half written has no epoch and is passed over.
    """
    epochs: dict[int, dict[str, float]] = {}
    versions = (folder / "csv").glob("version_*/metrics.csv")
    for path in sorted(versions, key=lambda path: int(path.parent.name.removeprefix("version_"))):
        started: set[int] = set()
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if not row["epoch"]:
                    continue
                values = {name: float(value) for name, value in row.items() if value}
                epoch = int(values.pop("epoch"))
                if epoch not in started:
                    epochs[epoch] = {"epoch": epoch}
                    started.add(epoch)
                epochs[epoch].update(values)
    return [epochs[epoch] for epoch in sorted(epochs)]
