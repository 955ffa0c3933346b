"""Model choice on validation prompts: static tree, ridge model, or the MLP that corrects it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from selector.network.checkpoint import best_actions
from selector.network.checkpoint_config import HEADS
from selector.network.network import SelectorNetwork
from selector.offline.baselines import score_policy
from selector.offline.labelled_roots import LabelledRoots
from selector.statistics import Ints, prompt_sums
from selector.training.data import RootDataModule

Model = Literal["static", "ridge", "mlp"]
MLP_ERRORS = 2.0


def keep_best(network: SelectorNetwork, trained: dict[str, Any], data: RootDataModule) -> Model:
    """Leave in `network`, which holds the ridge model, what is best, and return which that is.

    The ridge model must beat choosing as the best static action does; its penalty shrinks it where features tell
    nothing, so that asking for a standard error too would throw away more than it saves. The best of many epochs
    always looks better than where it started, so `trained` must gain more than two standard errors over the
    validation prompts.
    """
    ridge = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.set_linear(torch.zeros_like(network.linear_weight), network.mean_efficiency)
    network.gain.fill_(1.0)
    static = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    kept: Model = "static"
    state, reference = static, _best_choices(network, static, data)
    candidates: list[tuple[Model, dict[str, Any], float]] = [("ridge", ridge, 0.0), ("mlp", trained, MLP_ERRORS)]
    for name, candidate, errors in candidates:
        choices = _best_choices(network, candidate, data)
        gain, error = gain_over(choices, reference, data.validation_roots)
        if gain > errors * error:
            kept, state, reference = name, candidate, choices
    network.load_state_dict(state)
    if kept != "mlp":
        for parameter in network.body.parameters():  # its output layers are zero: random numbers that say nothing
            nn.init.zeros_(parameter)
    return kept


@torch.no_grad()
def _best_choices(network: SelectorNetwork, state: dict[str, Any], data: RootDataModule) -> Ints:
    """`[roots]`: choices of the better head at the validation roots."""
    network.load_state_dict(state)
    prediction, roots = network.eval()(data.validation.inputs), data.validation_roots
    choices = [best_actions(prediction, data.validation.times, head).numpy() for head in HEADS]
    return max(choices, key=lambda actions: score_policy(roots, actions, roots.selector_times).throughput)


def gain_over(actions: Ints, reference: Ints, roots: LabelledRoots) -> tuple[float, float]:
    """Tokens that `actions [roots]` gain over `reference [roots]` in equal time, and the standard error over prompts.

    To first order in the difference: `sum (tokens - rate * seconds)`, with the rate of the reference.
    """
    rows, count = np.arange(len(roots)), len(roots.prompt_names)
    rate = score_policy(roots, reference, roots.selector_times).throughput
    value = roots.efficiency - rate * roots.selector_times
    totals = prompt_sums(value[rows, actions] - value[rows, reference], roots.prompts, count)
    spread = float(totals.std(ddof=1)) if count > 1 else float("inf")
    return float(totals.sum()), spread * count**0.5
