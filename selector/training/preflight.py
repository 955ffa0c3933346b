"""What is refused before anything is written."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

import pytorch_lightning as pl

from selector.config import TrainConfig
from selector.dataset.manifest import Manifest
from selector.errors import UserError
from selector.network.network import INPUTS
from selector.training.loggers import LOGGERS

LARGEST_SEED = 2**32 - 2  # the validation cut takes the next one, and 32 bits are the limit there


def check_config(config: TrainConfig, manifest: Manifest | None = None) -> None:
    """A UserError names the first field that makes no sense, by itself or for the data set."""
    _check_numbers(config)
    if not config.verifiers or len(set(config.verifiers)) != len(config.verifiers):
        raise UserError(f"verifiers is {config.verifiers}: name each verifier once.")
    if config.inputs not in INPUTS:
        raise UserError(f"inputs is {config.inputs!r}: choose one of {', '.join(INPUTS)}.")
    for logger in config.loggers:
        if logger not in LOGGERS:
            raise UserError(f"loggers has {logger!r}: the known ones are {', '.join(LOGGERS)}.")
    if "tensorboard" in config.loggers and not (find_spec("tensorboard") or find_spec("tensorboardX")):
        raise UserError("loggers has 'tensorboard': install it first, `pip install ddte[tensorboard]`.")
    _check_devices(config)
    for verifier in config.verifiers if manifest else ():
        if manifest and verifier not in manifest.verifiers:
            raise UserError(f"verifiers has {verifier!r}: the data set has labels for {', '.join(manifest.verifiers)}.")


def _check_numbers(config: TrainConfig) -> None:
    for name in ("batch_size", "max_epochs", "patience", "components", "learning_rate"):
        if not 0 < getattr(config, name) < float("inf"):
            raise UserError(f"{name} is {getattr(config, name)}: give a number above 0.")
    if len(config.hidden_sizes) != 2 or min(config.hidden_sizes) < 1:
        raise UserError(f"hidden_sizes is {list(config.hidden_sizes)}: give two sizes of 1 or more.")
    for name in ("penalty", "regressor_weight", "weight_decay"):
        if not 0 <= getattr(config, name) < float("inf"):
            raise UserError(f"{name} is {getattr(config, name)}: give 0 or more.")
    for name in ("seed", "split_seed"):
        if not 0 <= getattr(config, name) <= LARGEST_SEED:
            raise UserError(f"{name} is {getattr(config, name)}: give a whole number from 0 to {LARGEST_SEED}.")
    if not 0 < config.worst_fraction <= 1:
        raise UserError(f"worst_fraction is {config.worst_fraction}: give a share above 0 and at most 1.")
    if not 0 <= config.dropout < 1:
        raise UserError(f"dropout is {config.dropout}: give a share from 0 to below 1.")


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
            reason = str(error).strip().splitlines()[0].split(". ")[0].rstrip(".")
            value = repr(getattr(config, name))
            raise UserError(f"{name} is {value} ({reason}): give one that Lightning and this machine have.") from None
