"""What an interrupted run left behind, once it is found whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from selector.artifacts.writing import write_bytes
from selector.errors import UserError

PARTS = ("state_dict", "callbacks", "optimizer_states", "loops", "epoch", "global_step")


class WholeStates(TorchCheckpointIO):
    """Lightning's states written whole or not at all; its own way copies them from the temporary folder's disk."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a state; an OSError where the disk is full leaves the state before it."""
        content = io.BytesIO()
        torch.save(checkpoint, content)
        write_bytes(Path(path), content.getvalue())


def read_state(path: Path, module: pl.LightningModule) -> dict[str, Any]:
    """Lightning's state in `path`, which must fit `module`; a UserError if it is missing or damaged."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        missing = [name for name in PARTS if name not in state]
        fits = not missing and {name: value.shape for name, value in state["state_dict"].items()} == {
            name: value.shape for name, value in module.state_dict().items()
        }
        reason = f"it has no {missing[0]}" if missing else "its weights are of another shape"
    except FileNotFoundError:
        fits, reason = False, "it is missing"
    except Exception:  # whatever unpickling a damaged file may raise
        fits, reason = False, "it cannot be read"
    if not fits:
        raise UserError(f"file '{path}' is damaged ({reason}): delete '{path.parent}' to train this selector anew.")
    return state
