"""Checks of a training configuration against this machine and a data set, before anything is written."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

import pytorch_lightning as pl

from selector.config import TrainConfig
from selector.dataset.manifest import Manifest
from selector.errors import UserError, first_line


def check_config(config: TrainConfig, manifest: Manifest | None = None) -> None:
    """A UserError names the first field that this machine, or the data set, does not have."""
    if "tensorboard" in config.loggers and not (find_spec("tensorboard") or find_spec("tensorboardX")):
        raise UserError("train.loggers has 'tensorboard': install it first, `pip install ddte[tensorboard]`.")
    _check_devices(config)
    for verifier in config.verifiers if manifest else ():
        if manifest and verifier not in manifest.verifiers:
            labelled = ", ".join(manifest.verifiers)
            raise UserError(f"train.verifiers has {verifier!r}: the data set has labels for {labelled}.")


def _check_devices(config: TrainConfig) -> None:
    """Lightning itself says whether it knows the accelerator, and whether this machine has it."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    given: dict[str, Any] = {"devices": 1}
    for name in ("accelerator", "devices", "strategy", "precision"):
        given[name] = getattr(config, name)
        try:
            pl.Trainer(**given, **quiet)
        except Exception as error:
            reason = first_line(error).split(". ")[0]
            value = repr(getattr(config, name))
            raise UserError(
                f"train.{name} is {value} ({reason}): give one that Lightning and this machine have."
            ) from None
