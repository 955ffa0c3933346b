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

from data_gen.distillation.losses import acceptance, cross_entropy, log_acceptance
from data_gen.distillation.openings import TASKS
from data_gen.distillation.shards import Batch, shard_batches
from data_gen.distillation.unrolled import unrolled_logits
from selector.artifacts.writing import atomic_write
from selector.config import DistillConfig
from selector.engine.early_exit import trained_parameters
from selector.errors import UserError

TEMPERATURES = (0.2, 0.6, 1.0)
LOWEST, HIGHEST = 0.2, 1.2  # of the temperatures at which the acceptance rate is trained
DEPTHS = 3  # that are measured
Report = Callable[[dict[str, Any]], None]


class DraftTraining:
    """A resumable run: the position (epoch, shard) and the optimiser are saved after every shard."""

    def __init__(
        self,
        draft: PreTrainedModel,
        head_tokens: Tensor,
        shards: list[Path],
        config: DistillConfig,
        held_out: Sequence[Path] = (),
    ) -> None:
        """`held_out`: shards on which the acceptance rate is measured after each epoch."""
        self.draft, self.shards, self.config, self.held_out = draft, shards, config, held_out
        self.columns = torch.full((draft.config.vocab_size,), -1)
        self.columns[head_tokens] = torch.arange(len(head_tokens))
        draft.requires_grad_(False)
        self.parameters = list(trained_parameters(draft).values())
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(
            self.parameters, config.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
        )
        self.done_shards = 0

    @property
    def total_shards(self) -> int:
        """Shards of all epochs."""
        return len(self.shards) * (self.config.epochs + self.config.total_variation_epochs)

    def run(self, state_path: Path, report: Report) -> None:
        """Train from where the state file says to the end. Raises UserError when the loss is no number any more."""
        if state_path.exists():
            self._load(torch.load(state_path, weights_only=True))
        while self.done_shards < self.total_shards:
            epoch, place = divmod(self.done_shards, len(self.shards))
            rng = random.Random(self.config.seed * 1009 + epoch)
            path = rng.sample(self.shards, len(self.shards))[place]
            losses = self._one_shard(path, random.Random(self.done_shards), epoch >= self.config.epochs)
            self._check(losses, epoch)
            self.done_shards += 1
            with atomic_write(state_path) as temporary:
                torch.save(self._state(), temporary)
            row: dict[str, Any] = {"epoch": epoch + 1, "loss": sum(losses) / len(losses)}
            if place == len(self.shards) - 1:
                row["acceptance"] = self.acceptance(self.held_out)
            report(row | {"done": self.done_shards / self.total_shards})

    def _check(self, losses: list[float], epoch: int) -> None:
        finite = math.isfinite(sum(losses)) and all(bool(weight.isfinite().all()) for weight in self.parameters)
        if not finite:
            raise UserError(
                f"distill.learning_rate is {self.config.learning_rate}: training diverged in epoch {epoch + 1}; "
                "give a smaller one, and another work folder."
            )

    def _one_shard(self, path: Path, rng: random.Random, accepting: bool) -> list[float]:
        losses = []
        batches = list(shard_batches(path, self.config.batch_size, rng))
        for index, batch in enumerate(batches):
            self._set_learning_rate((self.done_shards + index / len(batches)) / self.total_shards)
            loss = self.loss(batch, rng, accepting)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    def loss(self, batch: Batch, rng: random.Random, accepting: bool) -> Tensor:
        """The KL fit, or the log of the acceptance rate at a random temperature a position; the mean over depths."""
        with torch.autocast(batch.tokens.device.type, torch.bfloat16):
            logits = unrolled_logits(self.draft, batch, self.config.depths)
        columns = self.columns[batch.top_ids[batch.loss_mask]]
        top_logprobs = batch.top_logprobs[batch.loss_mask]
        generator = torch.Generator().manual_seed(rng.getrandbits(60))
        temperature = torch.ones(len(columns))
        if accepting:
            temperature = LOWEST + (HIGHEST - LOWEST) * torch.rand(len(columns), generator=generator)
        measure = log_acceptance if accepting else cross_entropy
        return torch.stack([measure(rows, columns, top_logprobs, temperature) for rows in logits]).mean()

    @torch.no_grad()
    def acceptance(self, shards: Sequence[Path]) -> list[dict[str, Any]]:
        """Mean acceptance rate over the sampled tokens of `shards` by depth, temperature and task.

        At a depth the draft has drafted all tokens since the target's pass; its laws are compared along the text.
        """
        sums: dict[tuple[int, float, str], list[float]] = {}
        for batch in (batch for path in shards for batch in shard_batches(path, self.config.batch_size, None)):
            columns, top_logprobs = self.columns[batch.top_ids[batch.loss_mask]], batch.top_logprobs[batch.loss_mask]
            tasks = batch.tasks[:, None].expand_as(batch.loss_mask)[batch.loss_mask]
            for depth, logits in enumerate(unrolled_logits(self.draft, batch, DEPTHS), 1):
                for temperature in TEMPERATURES:
                    rates = acceptance(logits, columns, top_logprobs, torch.full((len(logits),), temperature))
                    for task in sorted(set(tasks.tolist())):
                        own = rates[tasks == task]
                        total = sums.setdefault((depth, temperature, TASKS[task]), [0.0, 0])
                        total[0], total[1] = total[0] + float(own.sum()), total[1] + len(own)
        names = "depth", "temperature", "task", "acceptance", "tokens"
        return [
            dict(zip(names, (*key, total / count, count), strict=True)) for key, (total, count) in sorted(sums.items())
        ]

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
