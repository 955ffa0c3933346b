"""Which network is kept: static, linear or trained, by what validation prompts say."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from selector.network.checkpoint import best_actions
from selector.network.checkpoint_config import HEADS
from selector.network.network import SelectorNetwork
from selector.offline.training_baselines import throughput_of
from selector.training.data import Batch, RootDataModule

Kept = Literal["static", "linear", "trained"]
TRAINED_ERRORS = 2.0


def keep_best(network: SelectorNetwork, trained: dict[str, Any], data: RootDataModule) -> Kept:
    """Leave in `network`, which holds the linear model, what is best, and return which that is.

    The linear model must beat choosing as the best static action does; its penalty shrinks it where features tell
    nothing, so that asking for a standard error too would throw away more than it saves. The best of many epochs
    always looks better than where it started, so `trained` must gain more than two standard errors over the
    validation prompts.
    """
    validation = data.validation_roots.batch
    linear = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.set_linear(torch.zeros_like(network.linear_weight), network.mean_efficiency)
    static = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    kept: Kept = "static"
    state, reference = static, _best_choices(network, static, validation)
    candidates: list[tuple[Kept, dict[str, Any], float]] = [
        ("linear", linear, 0.0),
        ("trained", trained, TRAINED_ERRORS),
    ]
    for name, candidate, errors in candidates:
        choices = _best_choices(network, candidate, validation)
        gain, error = gain_over(choices, reference, validation)
        if gain > errors * error:
            kept, state, reference = name, candidate, choices
    network.load_state_dict(state)
    if kept != "trained":
        for parameter in network.body.parameters():  # its output layers are zero: random numbers that say nothing
            nn.init.zeros_(parameter)
    return kept


@torch.no_grad()
def _best_choices(network: SelectorNetwork, state: dict[str, Any], batch: Batch) -> Tensor:
    """`[N]`: choices of the better head."""
    network.load_state_dict(state)
    prediction = network.eval()(batch.inputs)
    choices = [best_actions(prediction, batch.times, head) for head in HEADS]
    return max(choices, key=lambda actions: throughput_of(actions, batch.efficiency, batch.times, batch.trajectories))


def gain_over(actions: Tensor, reference: Tensor, batch: Batch) -> tuple[float, float]:
    """Tokens that `actions [N]` gain over `reference [N]` in equal time, and the standard error over prompts.

    To first order in the difference: `sum (tokens - rate * seconds)`, with the rate of the reference.
    """
    rate = throughput_of(reference, batch.efficiency, batch.times, batch.trajectories)
    value = batch.efficiency.double() - rate * batch.times.double()
    difference = (value.gather(1, actions[:, None]) - value.gather(1, reference[:, None]))[:, 0]
    present, prompts = torch.unique(batch.prompts, return_inverse=True)
    totals = torch.zeros(len(present), dtype=torch.float64).index_add(0, prompts, difference)
    spread = float(totals.std()) if len(present) > 1 else float("inf")
    return float(totals.sum()), spread * len(present) ** 0.5
