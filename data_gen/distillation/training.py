"""Fit an early-exit draft to the target's stored next-token laws."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from data_gen.distillation.shards import Batch, shard_batches
from selector.artifacts import atomic_write
from selector.config import DistillConfig
from selector.engine.early_exit import trained_parameters

Report = Callable[[dict[str, float]], None]


def draft_logits(draft: PreTrainedModel, batch: Batch) -> Tensor:
    """`[sampled tokens, head]`, float32: the draft's logits where the batch has a law of the target."""
    positions = (batch.mask.cumsum(-1) - 1).clamp(min=0)
    hidden = draft.base_model(
        batch.tokens, attention_mask=batch.mask, position_ids=positions, use_cache=False
    ).last_hidden_state[:, batch.start :]
    logits: Tensor = draft.lm_head(hidden[batch.loss_mask])
    return logits.float()


def cross_entropy(logits: Tensor, columns: Tensor, top_logprobs: Tensor) -> Tensor:
    """KL fit up to a constant, over the target's top tokens that the head has; means over positions.

    `columns`, `top_logprobs [positions, top]`: head column of each top token (-1: not in the head).
    """
    logprobs = logits.log_softmax(-1).gather(1, columns.clamp(min=0))
    weights = top_logprobs.exp() * (columns >= 0)
    return -(weights * logprobs).sum(-1).mean()


def rejection_rate(logits: Tensor, columns: Tensor, top_logprobs: Tensor, temperature: Tensor) -> Tensor:
    """`1 - sum min(target, draft)` at each position's `temperature [positions]`, over the target's top tokens.

    The target's law at another temperature is normalised over its top tokens and, at temperature 1 and above,
    over the mass of the tail, so the rate is exact at temperature 1 up to overlaps in the tail.
    """
    scaled = top_logprobs / temperature[:, None]
    tail = (1 - top_logprobs.exp().sum(-1)).clamp(min=0) * (temperature >= 1)
    target = scaled.exp() / (scaled.exp().sum(-1) + tail)[:, None]
    draft = (logits / temperature[:, None]).softmax(-1).gather(1, columns.clamp(min=0)) * (columns >= 0)
    return 1 - torch.minimum(target, draft).sum(-1).mean()


class DraftTraining:
    """A resumable run: the position (epoch, shard) and the optimiser are saved after every shard."""

    def __init__(self, draft: PreTrainedModel, head_tokens: Tensor, shards: list[Path], config: DistillConfig) -> None:
        self.draft, self.shards, self.config = draft, shards, config
        self.columns = torch.full((draft.config.vocab_size,), -1)
        self.columns[head_tokens] = torch.arange(len(head_tokens))
        draft.requires_grad_(False)
        self.parameters = list(trained_parameters(draft).values())
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(self.parameters, config.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
        self.done_shards = 0

    @property
    def total_shards(self) -> int:
        return len(self.shards) * (self.config.epochs + self.config.total_variation_epochs)

    def run(self, state_path: Path, report: Report) -> None:
        """Train from where the state file says to the end."""
        if state_path.exists():
            self._load(torch.load(state_path, weights_only=True))
        while self.done_shards < self.total_shards:
            epoch, place = divmod(self.done_shards, len(self.shards))
            rng = random.Random(self.config.seed * 1009 + epoch)
            path = rng.sample(self.shards, len(self.shards))[place]
            losses = self._one_shard(path, random.Random(self.done_shards), epoch >= self.config.epochs)
            self.done_shards += 1
            with atomic_write(state_path) as temporary:
                torch.save(self._state(), temporary)
            report(
                {"epoch": epoch + 1, "loss": sum(losses) / len(losses), "done": self.done_shards / self.total_shards}
            )

    def _one_shard(self, path: Path, rng: random.Random, total_variation: bool) -> list[float]:
        losses = []
        batches = list(shard_batches(path, self.config.batch_size, rng))
        for index, batch in enumerate(batches):
            self._set_learning_rate((self.done_shards + index / len(batches)) / self.total_shards)
            loss = self.loss(batch, rng, total_variation)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    def loss(self, batch: Batch, rng: random.Random, total_variation: bool) -> Tensor:
        """The KL fit, or the rejection rate at a random temperature a position with a tenth of the KL fit."""
        with torch.autocast(batch.tokens.device.type, torch.bfloat16):
            logits = draft_logits(self.draft, batch)
        columns = self.columns[batch.top_ids[batch.loss_mask]]
        top_logprobs = batch.top_logprobs[batch.loss_mask]
        fit = cross_entropy(logits, columns, top_logprobs)
        if not total_variation:
            return fit
        generator = torch.Generator().manual_seed(rng.getrandbits(60))
        temperature = 0.2 + torch.rand(len(logits), generator=generator)
        return rejection_rate(logits, columns, top_logprobs, temperature) + 0.1 * fit

    @torch.no_grad()
    def acceptance(self, shards: list[Path], temperatures: Sequence[float]) -> dict[float, float]:
        """Mean acceptance rate over the sampled tokens of `shards` by temperature; empty without shards."""
        accepted, count = dict.fromkeys(temperatures, 0.0), 0
        for batch in (batch for path in shards for batch in shard_batches(path, self.config.batch_size, None)):
            logits = draft_logits(self.draft, batch)
            columns, top_logprobs = self.columns[batch.top_ids[batch.loss_mask]], batch.top_logprobs[batch.loss_mask]
            for temperature in temperatures:
                rejected = rejection_rate(logits, columns, top_logprobs, torch.full((len(logits),), temperature))
                accepted[temperature] += len(logits) * (1 - float(rejected))
            count += len(logits)
        return {temperature: total / count for temperature, total in accepted.items()} if count else {}

    def _set_learning_rate(self, progress: float) -> None:
        """Linear warm-up over 2% of the run, then a cosine down to 2% of the peak."""
        warm = min(progress / 0.02, 1.0)
        factor = warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * factor

    def _state(self) -> dict[str, Any]:
        weights = {name: p.detach() for name, p in trained_parameters(self.draft).items()}
        return {"done_shards": self.done_shards, "weights": weights, "optimizer": self.optimizer.state_dict()}

    def _load(self, state: dict[str, Any]) -> None:
        self.done_shards = state["done_shards"]
        with torch.no_grad():
            for name, parameter in trained_parameters(self.draft).items():
                parameter.copy_(state["weights"][name])
        self.optimizer.load_state_dict(state["optimizer"])
