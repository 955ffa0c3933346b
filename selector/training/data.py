"""Training and validation roots of one verifier: labelled roots to score on, and batches of tensors to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from selector.config import TrainConfig
from selector.dataset.dataset import RootDataset
from selector.latency import LatencyProfile
from selector.network.checkpoint import network_inputs
from selector.network.network import Inputs
from selector.network.ridge import label_deviation
from selector.offline.baselines import best_action, best_per_setting, score_policy
from selector.offline.labelled_roots import build_roots
from selector.training.splits import Splits


class Batch(NamedTuple):
    """Roots `[B, ...]`, float32.

    Attributes:
        efficiency, deviation: label over all samples and its uncertainty, `[B, actions]`.
        times: seconds of a step whose action is chosen here, `[B, actions]`.
        base: throughput of the static action of the root's sampling setting, `[B]`.
    """

    inputs: Inputs
    efficiency: Tensor
    deviation: Tensor
    times: Tensor
    base: Tensor

    def take(self, rows: Sequence[int]) -> Batch:
        """The given rows."""
        inputs, *columns = self
        return Batch(Inputs(*(block[rows] for block in inputs)), *(column[rows] for column in columns))


class RootDataModule(pl.LightningDataModule):
    """Training and validation roots of one verifier under one machine's times; test roots are never read.

    Attributes:
        train, validation: what the network sees of the roots.
        train_roots, validation_roots: the same roots, to score choices on.
        best_static: the best static action of the training roots.
        static_throughput: its tokens a second on the validation roots, without the selector's cost.
    """

    def __init__(
        self, dataset: RootDataset, verifier: str, profile: LatencyProfile, splits: Splits, config: TrainConfig
    ) -> None:
        super().__init__()
        self.verifier, self.profile, self.config = verifier, profile, config
        train_rows, validation_rows = (splits.rows(dataset, part) for part in ("train", "validation"))
        seen = dataset.subset(train_rows + validation_rows)
        roots, is_train = build_roots(seen, verifier, profile), np.arange(len(seen)) < len(train_rows)
        self.train_roots, self.validation_roots = roots.subset(is_train), roots.subset(~is_train)
        efficiency, static = seen.mean_efficiency(verifier), best_per_setting(self.train_roots, roots)
        rows = np.arange(len(roots))
        deviation = label_deviation(efficiency, seen.standard_error[verifier], torch.from_numpy(is_train))
        deviation[:, len(roots.space.drafted) :][~seen.matched] = torch.inf  # nothing to learn of copies there
        whole = Batch(
            inputs=network_inputs(seen.hidden, seen.scalars, seen.context_length.double(), profile),
            efficiency=efficiency,
            deviation=deviation,
            times=torch.from_numpy(roots.selector_times).float(),
            base=torch.from_numpy(roots.efficiency[rows, static] / roots.times[rows, static]).float(),
        )
        self.train, self.validation = (whole.take(np.flatnonzero(part).tolist()) for part in (is_train, ~is_train))
        self.best_static = best_action(self.train_roots)
        always = np.full(len(self.validation_roots), self.best_static)
        self.static_throughput = score_policy(self.validation_roots, always, self.validation_roots.times).throughput

    def train_dataloader(self) -> Any:
        """Shuffled anew every epoch, by seed and epoch alone, so that a resumed run sees the same batches."""
        trainer = self.trainer
        replicas, rank = (trainer.world_size, trainer.global_rank) if trainer else (1, 0)
        rows: Any = range(len(self.train_roots))
        sampler: DistributedSampler[int] = DistributedSampler(rows, replicas, rank, shuffle=True, seed=self.config.seed)
        return DataLoader(rows, self.config.batch_size, sampler=sampler, collate_fn=self.train.take)

    def val_dataloader(self) -> Any:
        """All validation roots in one batch."""
        whole: Any = [self.validation]
        return DataLoader(whole, batch_size=None)
