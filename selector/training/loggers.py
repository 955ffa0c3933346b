"""Lightning loggers of learning curves: always CSV; Weights & Biases and TensorBoard where asked for."""

from __future__ import annotations

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
