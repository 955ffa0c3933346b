"""Selectors whose choice at a root of `synthetic_data.make_dataset` is known."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from selector.network.checkpoint import SelectorCheckpoint
from selector.network.checkpoint_config import CheckpointConfig
from selector.network.network import Inputs, NetworkShape, Prediction
from selector.trees.expansion import Expansion
from tests.support.profiles import make_profile
from tests.support.synthetic_data import SPACE, TWO_SCALARS

SHAPE = NetworkShape(6, 6, len(TWO_SCALARS), tuple(SPACE.limits))


class ScriptedNetwork(torch.nn.Module):
    """Stands for a trained network: a function from the first scalar (hard roots are above 0.5) to both heads."""

    def __init__(self, easy: Expansion, hard: Expansion) -> None:
        super().__init__()
        self.choices = SPACE.index(easy), SPACE.index(hard)
        self.mean_efficiency, self.gain, self.shape = torch.ones(len(SPACE)), torch.ones(()), SHAPE

    def forward(self, inputs: Inputs) -> Prediction:
        easy, hard = self.choices
        chosen = torch.where(inputs.scalars[:, 0] > 0.5, hard, easy)
        logits = torch.nn.functional.one_hot(chosen, len(SPACE)).float()
        return Prediction(logits, 1 + 1000 * logits, self.mean_efficiency)


class EvenNetwork(torch.nn.Module):
    """Predicts that half of the drafted depth is accepted, everywhere."""

    gain, shape = torch.ones(()), SHAPE
    mean_efficiency = torch.tensor([1 + expansion.max_depth / 2 for expansion in SPACE.expansions])

    def forward(self, inputs: Inputs) -> Prediction:
        efficiency = self.mean_efficiency.expand(len(inputs.scalars), -1)
        return Prediction(efficiency, efficiency, self.mean_efficiency)


def make_checkpoint(
    easy: tuple[int, int, int] = (2, 2, 3),
    hard: tuple[int, int, int] = (1, 0, 0),
    verifier: str = "specinfer",
    **changes: Any,
) -> SelectorCheckpoint:
    """A selector that takes one action at easy and one at hard roots, through either head."""
    values: dict[str, Any] = {
        "verifier": verifier,
        "shape": SHAPE,
        "scalars": TWO_SCALARS,
        "default_head": "policy",
        "target_fingerprint": "t",
        "draft_fingerprint": "d",
        "draft_warp": "same",
        "sampling_range": {},
        "profile": asdict(make_profile()),
        "best_static": (1, 0, 0),
        "data_hash": "0" * 64,
    }
    network: Any = ScriptedNetwork(Expansion(*easy), Expansion(*hard))
    return SelectorCheckpoint(network, CheckpointConfig(**(values | changes)))
