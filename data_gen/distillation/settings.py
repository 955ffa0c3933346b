"""What is refused before a draft is distilled: sampling and training take hours, so nothing may fail after them."""

from __future__ import annotations

from pathlib import Path

from selector.config import DistillConfig
from selector.engine.early_exit import is_early_exit
from selector.errors import UserError


def check_target(config: DistillConfig, num_layers: int, vocab_size: int) -> None:
    """A UserError names the first setting that the target, of so many layers and tokens, does not have."""
    if max(config.layers) >= num_layers:
        raise UserError(f"distill.layers is {config.layers}: the target has layers 0 to {num_layers - 1}.")
    for name in ("head_tokens", "top_tokens"):
        if getattr(config, name) > vocab_size:
            raise UserError(f"distill.{name} is {getattr(config, name)}: the target has {vocab_size} tokens.")


def check_start(folder: Path) -> None:
    """A UserError where training cannot start from a folder, which holds no distilled draft."""
    if not is_early_exit(folder):
        raise UserError(f"distill.start is {str(folder)!r}: it holds no draft that `ddte distill` wrote.")
