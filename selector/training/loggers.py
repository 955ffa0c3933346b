"""Lightning loggers: always CSV; Weights & Biases and TensorBoard where asked for, with figures at the end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from selector.config import TrainConfig
from selector.errors import UserError, first_line
from selector.latency import LatencyProfile


def build_loggers(config: TrainConfig, folder: Path, run_id: str, settings: dict[str, Any]) -> list[Logger]:
    """Loggers into a verifier's `folder`; `run_id` lets a resumed run go on in the same W&B run.

    Raises UserError where W&B does not start.
    """
    loggers: list[Logger] = [CSVLogger(folder, name="csv", flush_logs_every_n_steps=1)]
    for name in config.loggers:
        if name == "wandb":
            import wandb  # takes a while

            loggers.append(WandbLogger(save_dir=folder, id=run_id, resume="allow", **wandb_labels(config, folder)))
            try:
                loggers[-1].log_hyperparams(settings)
            except wandb.Error as error:
                way_out = "mend that, set WANDB_MODE=offline, or leave it out"
                raise UserError(
                    f"train.loggers has 'wandb', which does not start ({first_line(error)}): {way_out}."
                ) from None
        elif name == "tensorboard":
            loggers.append(TensorBoardLogger(folder, name="tensorboard", version="", default_hp_metric=False))
    return loggers


def wandb_labels(config: TrainConfig, folder: Path) -> dict[str, Any]:
    """What W&B shows of the run of one verifier: by `config`, else by the variables of W&B, else by default."""
    name = config.wandb_name or os.environ.get("WANDB_NAME", "")
    if name and len(config.verifiers) > 1:
        name = f"{name}-{folder.name}"
    tags = config.wandb_tags or [tag.strip() for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag.strip()]
    offline = {} if "WANDB_MODE" in os.environ else {"mode": "offline"}
    return {
        "project": config.wandb_project or os.environ.get("WANDB_PROJECT") or "ddte",
        "group": config.wandb_group or os.environ.get("WANDB_RUN_GROUP") or folder.resolve().parent.name,
        "name": name or folder.name,
        "tags": tags,
        **offline,
    }


def log_end(
    loggers: Sequence[Logger], settings: dict[str, Any], figures: dict[str, float], profile: LatencyProfile
) -> None:
    """Figures of the trained selector and the pass times: W&B's summary and configuration, TensorBoard's hparams."""
    figures = figures | profile_figures(profile)
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_hyperparams({"profile": asdict(profile)})
            logger.experiment.summary.update(figures)
            logger.experiment.finish()
        elif isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(settings | {"machine": profile.hardware}, figures)
            logger.finalize("success")


def profile_figures(profile: LatencyProfile) -> dict[str, float]:
    """Milliseconds of passes of one row at the middle context, of a plain token, and of a choice."""
    middle = len(profile.contexts) // 2
    return {
        "profile/target_ms": 1e3 * profile.target_seconds[middle][0],
        "profile/draft_ms": 1e3 * profile.draft_seconds[middle][0],
        "profile/plain_ms": 1e3 * profile.plain_seconds[middle],
        "profile/choice_ms": 1e3 * profile.selector_seconds,
        "profile/disturbed": float(profile.disturbance() is not None),
    }
