"""Which network is kept: the best epoch, if validation prompts give evidence that it beats not having learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from selector.checkpoint import best_actions
from selector.checkpoint_config import HEADS
from selector.network import SelectorNetwork
from selector.training.baselines import throughput_of
from selector.training.data import Batch, RootDataModule


def keep_best(network: SelectorNetwork, trained: dict[str, Any], data: RootDataModule) -> bool:
    """Load `trained` into the untrained `network` if it is better; returns whether it was.

    The gain of its better head must exceed one standard error over the validation prompts. The best of many
    epochs always looks better than the untrained network, which chooses as the best static action does; where
    labels are noise, this keeps the selector from losing to that action.
    """
    validation = data.validation_roots.batch
    untrained = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    reference = _best_choices(network.eval(), validation)
    network.load_state_dict(trained)
    gain, error = gain_over(_best_choices(network, validation), reference, validation, data.validation_prompts)
    if gain > error:
        return True
    network.load_state_dict(untrained)
    return False


@torch.no_grad()
def _best_choices(network: SelectorNetwork, batch: Batch) -> Tensor:
    prediction = network(batch.inputs)
    choices = [best_actions(prediction, batch.times, head) for head in HEADS]
    return max(choices, key=lambda actions: throughput_of(actions, batch.efficiency, batch.times))


def gain_over(actions: Tensor, reference: Tensor, batch: Batch, prompts: Tensor) -> tuple[float, float]:
    """Tokens that `actions [N]` gain over `reference [N]` in equal time, and the standard error over prompts.

    To first order in the difference: `sum (tokens - rate * seconds)`, with the rate of the reference.
    """
    rate = throughput_of(reference, batch.efficiency, batch.times)
    value = batch.efficiency.double() - rate * batch.times.double()
    difference = (value.gather(1, actions[:, None]) - value.gather(1, reference[:, None]))[:, 0]
    count = int(prompts.max()) + 1
    totals = torch.zeros(count, dtype=torch.float64).index_add(0, prompts, difference)
    spread = float(totals.std()) if count > 1 else float("inf")
    return float(totals.sum()), spread * count**0.5
