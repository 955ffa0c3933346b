"""Synthetic roots with known answers; no model and no file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from selector.dataset.records import Manifest, RootDataset
from selector.features import HIDDEN
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.checkpoint_config import CheckpointConfig
from selector.network.network import Inputs, NetworkShape, Prediction
from selector.trees.expansion import ActionSpace, Expansion

SPACE = ActionSpace(2, 2, 3)
SETTINGS = [(0.2, 1.0), (1.0, 0.9)]
TASKS = ["coding", "writing"]
SCALARS = ["draft_entropy_root", "context_length"]


def make_profile() -> LatencyProfile:
    """A target pass costs 10 ms, a draft pass 2 ms, a plain token 10 ms; choosing costs 0.1 ms."""
    table = ((0.01, 0.01), (0.01, 0.01))
    draft = ((0.002, 0.002), (0.002, 0.002))
    return LatencyProfile((1, 512), (1, 64), table, draft, (0.0, 0.0), (0.01, 0.01), 1e-4, {"device": "toy"})


def make_flat_profile() -> LatencyProfile:
    """Every action takes the same time."""
    table, nothing = ((0.01, 0.01), (0.01, 0.01)), ((0.0, 0.0), (0.0, 0.0))
    return LatencyProfile((1, 512), (1, 64), table, nothing, (0.0, 0.0), (0.01, 0.01))


def expected_tokens(acceptance: np.ndarray) -> np.ndarray:
    """`[roots, actions]`: geometric acceptance along the tree, a little more where it branches."""
    columns = []
    for branches, trunk, length in SPACE.expansions:
        reach, total = np.ones_like(acceptance), np.ones_like(acceptance)
        for depth in range(trunk + length):
            rate = 1 - (1 - acceptance) ** 1.5 if branches > 1 and depth == trunk else acceptance
            reach = reach * rate
            total = total + reach
        columns.append(total)
    return np.stack(columns, 1)


def make_dataset(
    prompts: int = 24,
    roots: int = 8,
    noise: float = 0.0,
    constant: float | None = None,
    verifiers: tuple[str, ...] = ("specinfer",),
    seed: int = 0,
) -> RootDataset:
    """Half of the roots accept 95% of the draft's tokens and half 5%; the first scalar tells.

    With `constant` every action of every root yields that many tokens, apart from noise.
    """
    rng = np.random.default_rng(seed)
    size = prompts * roots
    hard = rng.random(size) < 0.5
    mean = expected_tokens(np.where(hard, 0.05, 0.95))
    if constant is not None:
        mean = np.full_like(mean, constant)
    labels = {
        name: torch.tensor(mean[:, None] + noise * rng.standard_normal((size, 2, len(SPACE))), dtype=torch.float32)
        for name in verifiers
    }
    scalars = np.stack([hard + 0.1 * rng.random(size), rng.integers(20, 200, size)], 1)
    hidden = {name: torch.tensor(rng.standard_normal((size, 6)), dtype=torch.float32) for name in HIDDEN}
    index = np.arange(size) // roots
    manifest = Manifest({}, tuple(SPACE.limits), list(verifiers), SCALARS, {"target": 6, "draft": 6}, "t", "d")
    return RootDataset(
        manifest=manifest,
        hidden=hidden,
        scalars=torch.tensor(scalars, dtype=torch.float32),
        efficiency=labels,
        standard_error={name: torch.full((size, len(SPACE)), noise) for name in verifiers},
        prompt_ids=[f"prompt-{number:03d}" for number in index],
        tasks=[TASKS[number % 2] for number in index],
        settings=torch.tensor([SETTINGS[number // 2 % 2] for number in index]),
        context_length=torch.tensor(scalars[:, 1], dtype=torch.int64),
        position=torch.zeros(size, dtype=torch.int64),
    )


class ScriptedNetwork(torch.nn.Module):
    """Stands for a trained network: a function from the first scalar (hard roots are above 0.5) to both heads."""

    def __init__(self, easy: Expansion, hard: Expansion) -> None:
        super().__init__()
        self.choices = SPACE.index(easy), SPACE.index(hard)
        self.mean_efficiency = torch.ones(len(SPACE))

    def forward(self, inputs: Inputs) -> Prediction:
        easy, hard = self.choices
        chosen = torch.where(inputs.scalars[:, 0] > 0.5, hard, easy)
        logits = torch.nn.functional.one_hot(chosen, len(SPACE)).float()
        return Prediction(logits, 1 + 1000 * logits, self.mean_efficiency)


class EvenNetwork(torch.nn.Module):
    """Predicts that half of the drafted depth is accepted, everywhere."""

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
        "shape": NetworkShape(6, 6, len(SCALARS), tuple(SPACE.limits)),
        "scalars": SCALARS,
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
