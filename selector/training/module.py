"""Both heads as a LightningModule."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from selector.config import TrainConfig
from selector.network.checkpoint import best_actions
from selector.network.checkpoint_config import HEADS
from selector.network.network import NetworkShape, SelectorNetwork
from selector.network.ridge import fit_linear
from selector.offline.training_baselines import throughput_of
from selector.training.data import Batch
from selector.training.objectives import policy_loss, regressor_loss

MONITOR = "validation_throughput"


class SelectorModule(pl.LightningModule):
    """Trains a `SelectorNetwork`; what counts is `validation_throughput`, realised by the better head.

    Before the first step the network chooses as its linear model does (`fit_statistics`).
    """

    def __init__(self, shape: NetworkShape, config: TrainConfig) -> None:
        super().__init__()
        self.config = config
        self.network = SelectorNetwork(shape)

    def fit_statistics(self, train: Batch) -> None:
        """Take normalisation, linear model, label means and what time is worth from all training roots."""
        fit_linear(self.network, train.inputs, train.efficiency, train.deviation, train.times, train.prompts)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.config.learning_rate, weight_decay=self.config.weight_decay)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Dropout follows from seed, step and process alone, so that a resumed run repeats the same steps."""
        torch.manual_seed(self.config.seed * 1_000_003 + self.global_step + 500_009 * self.global_rank)

    def training_step(self, batch: Batch, _: int) -> Tensor:
        losses = self._losses(batch)
        logged = {f"train_{name}": value.detach() for name, value in losses.items()}
        self.log_dict(logged, on_step=False, on_epoch=True, batch_size=len(batch.base))
        return losses["loss"]

    def validation_step(self, batch: Batch, _: int) -> None:
        """In full precision, since the exported selector decides in it."""
        with torch.autocast(self.device.type, enabled=False):
            losses = {f"validation_{name}": value for name, value in self._losses(batch).items()}
            realised = realised_throughputs(self.network, batch)
        heads = {f"validation_throughput_{name}": value for name, value in realised.items()}
        self.log_dict({**losses, **heads, MONITOR: max(realised.values())}, batch_size=len(batch.base))

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        config, prediction = self.config, self.network(batch.inputs)
        policy = policy_loss(
            prediction.policy_logits,
            batch.efficiency,
            batch.times,
            batch.base,
            penalty=config.penalty,
            worst_fraction=config.worst_fraction,
        )
        regressor = regressor_loss(prediction.efficiency, batch.efficiency, batch.deviation)
        loss = policy.loss + config.regressor_weight * regressor
        return {
            "loss": loss,
            "policy_log_ratio": policy.log_ratio,
            "policy_penalty": policy.penalty,
            "policy_ratio": policy.ratio,
            "regressor": regressor,
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Say in the file what it is of; plain values only, so that it loads with `weights_only=True`."""
        checkpoint["selector"] = {"shape": asdict(self.network.shape), "seed": self.config.seed}


@torch.no_grad()
def realised_throughputs(network: SelectorNetwork, batch: Batch) -> dict[str, float]:
    """Tokens a second that each head's choices realise, by the labels."""
    prediction = network(batch.inputs)
    labels = [column.cpu() for column in (batch.efficiency, batch.times, batch.trajectories)]
    return {head: throughput_of(best_actions(prediction, batch.times, head).cpu(), *labels) for head in HEADS}
