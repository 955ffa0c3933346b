"""What is refused before anything is written."""

from __future__ import annotations

from importlib.util import find_spec

from selector.config import TrainConfig
from selector.errors import UserError
from selector.manifest import Manifest
from selector.training.loggers import LOGGERS


def check_config(config: TrainConfig, manifest: Manifest | None = None) -> None:
    """A UserError names the first field that makes no sense, by itself or for the data set."""
    for name in ("batch_size", "max_epochs", "patience", "projection", "learning_rate"):
        if not getattr(config, name) > 0:
            raise UserError(f"{name} is {getattr(config, name)}: give a number above 0.")
    for name in ("penalty", "regressor_weight", "weight_decay"):
        if not getattr(config, name) >= 0:
            raise UserError(f"{name} is {getattr(config, name)}: give 0 or more.")
    if not 0 < config.worst_fraction <= 1:
        raise UserError(f"worst_fraction is {config.worst_fraction}: give a share above 0 and at most 1.")
    for name in ("dropout", "hidden_dropout"):
        if not 0 <= getattr(config, name) < 1:
            raise UserError(f"{name} is {getattr(config, name)}: give a share from 0 to below 1.")
    if not config.verifiers or len(set(config.verifiers)) != len(config.verifiers):
        raise UserError(f"verifiers is {config.verifiers}: name each verifier once.")
    for logger in config.loggers:
        if logger not in LOGGERS:
            raise UserError(f"loggers has {logger!r}: the known ones are {', '.join(LOGGERS)}.")
    if "tensorboard" in config.loggers and not (find_spec("tensorboard") or find_spec("tensorboardX")):
        raise UserError("loggers has 'tensorboard': install the package tensorboard first.")
    for verifier in config.verifiers if manifest else ():
        if manifest and verifier not in manifest.verifiers:
            raise UserError(f"verifiers has {verifier!r}: the data set has labels for {', '.join(manifest.verifiers)}.")
