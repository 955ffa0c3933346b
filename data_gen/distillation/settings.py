"""What is refused before a draft is distilled: sampling and training take hours, so nothing may fail after them."""

from __future__ import annotations

from selector.config import DistillConfig
from selector.distributions import Sampling
from selector.errors import UserError

AT_LEAST_ONE = ("token_budget", "sampling_batch", "new_tokens", "top_tokens", "epochs", "batch_size")
AT_LEAST_ZERO = ("head_tokens", "holdout_tokens", "total_variation_epochs", "seed")


def check_settings(config: DistillConfig) -> None:
    """A UserError names the first setting that makes no sense by itself."""
    for limit, names in ((1, AT_LEAST_ONE), (0, AT_LEAST_ZERO)):
        for name in names:
            if getattr(config, name) < limit:
                raise UserError(f"distill.{name} is {getattr(config, name)}: give {limit} or more.")
    if not 0 < config.learning_rate < float("inf"):
        raise UserError(f"distill.learning_rate is {config.learning_rate}: give a number above 0.")
    if not config.layers or min(config.layers) < 0:
        raise UserError(f"distill.layers is {config.layers}: name one or more of the target's layers, from 0.")
    if not config.settings:
        raise UserError("distill.settings is empty: give one or more pairs of temperature and top-p.")
    for setting in config.settings:
        _check_setting(setting)


def _check_setting(setting: tuple[float, float]) -> None:
    try:
        temperature, top_p = setting
        sampling = Sampling(temperature, top_p)
    except ValueError as error:
        raise UserError(
            f"distill.settings has {setting} ({str(error).rstrip('.')}): give (temperature, top-p)."
        ) from None
    if sampling.temperature == 0:
        raise UserError(f"distill.settings has {setting}: text is sampled, so give a temperature above 0.")


def check_target(config: DistillConfig, num_layers: int, vocab_size: int) -> None:
    """A UserError names the first setting that the target, of so many layers and tokens, does not have."""
    if max(config.layers) >= num_layers:
        raise UserError(f"distill.layers is {config.layers}: the target has layers 0 to {num_layers - 1}.")
    for name in ("head_tokens", "top_tokens"):
        if getattr(config, name) > vocab_size:
            raise UserError(f"distill.{name} is {getattr(config, name)}: the target has {vocab_size} tokens.")
