"""Lightning module that trains both heads, and their losses."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import functional

from selector.config import TrainConfig
from selector.network.checkpoint import best_actions
from selector.network.checkpoint_config import HEADS
from selector.network.network import NetworkShape, SelectorNetwork
from selector.network.ridge import fit_linear
from selector.offline.baselines import score_policy
from selector.offline.labelled_roots import LabelledRoots
from selector.training.data import Batch, RootDataModule

MONITOR = "validation_throughput"


class PolicyLoss(NamedTuple):
    """Scalars: the loss, its two terms, and the batch mean of the throughput ratio."""

    loss: Tensor
    log_ratio: Tensor
    penalty: Tensor
    ratio: Tensor


def policy_loss(
    logits: Tensor, efficiency: Tensor, times: Tensor, base: Tensor, *, penalty: float, worst_fraction: float
) -> PolicyLoss:
    """The objective of arXiv 2602.16994 for the policy `pi = softmax(logits)`.

    With `TPS = sum_a pi(a) efficiency(a) / sum_a pi(a) times(a)` and `ratio = TPS / base`:
    `mean(-log ratio) + penalty * mean over the worst fraction of max(1 - ratio, 0)^2`.

    Args:
        logits, efficiency, times: `[B, actions]`; `base [B]`, the throughput of each root's static action.
        penalty, worst_fraction: `lambda` and `alpha`; at least one root is in the worst fraction.
    """
    policy = logits.softmax(1)
    ratio = (policy * efficiency).sum(1) / (policy * times).sum(1) / base
    shortfall = (1 - ratio).clamp(min=0).square()
    worst = shortfall.topk(math.ceil(worst_fraction * len(shortfall)) or 1).values.mean()
    log_ratio = -ratio.log().mean()
    return PolicyLoss(log_ratio + penalty * worst, log_ratio, worst, ratio.mean())


def regressor_loss(predicted: Tensor, efficiency: Tensor, deviation: Tensor) -> Tensor:
    """Huber loss of errors in units of `deviation`, all `[B, actions]`: certain labels weigh more."""
    return functional.huber_loss(predicted / deviation, efficiency / deviation)


class SelectorModule(pl.LightningModule):
    """Trains a `SelectorNetwork`; what counts is `validation_throughput`, realised by the better head.

    Before the first step the network chooses as its linear model does (`fit_statistics`).
    """

    def __init__(self, shape: NetworkShape, config: TrainConfig) -> None:
        super().__init__()
        self.config = config
        self.network = SelectorNetwork(shape)

    def fit_statistics(self, data: RootDataModule) -> None:
        """Fit encoder (standardisation, PCA), ridge model, label means and time prices on all training roots."""
        train, prompts = data.train, torch.from_numpy(data.train_roots.prompts)
        fit_linear(self.network, train.inputs, train.efficiency, train.deviation, train.times, prompts)

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
            data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
            realised = realised_throughputs(self.network, batch, data.validation_roots)
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
def realised_throughputs(network: SelectorNetwork, batch: Batch, roots: LabelledRoots) -> dict[str, float]:
    """Tokens a second that each head's choices realise by the labels; `batch` is what the network sees of `roots`."""
    prediction = network(batch.inputs)
    choices = {head: best_actions(prediction, batch.times, head).cpu().numpy() for head in HEADS}
    return {head: score_policy(roots, actions, roots.selector_times).throughput for head, actions in choices.items()}
