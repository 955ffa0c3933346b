"""The roots of one verifier as batches of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from selector.config import TrainConfig
from selector.dataset.records import RootDataset
from selector.latency import LatencyProfile
from selector.network.checkpoint import network_inputs
from selector.network.network import Inputs
from selector.network.ridge import label_deviation
from selector.offline.throughput import number_trajectories
from selector.offline.training_baselines import actions_per_setting, best_action, throughput_of
from selector.training.splits import Splits


class Batch(NamedTuple):
    """Roots `[B, ...]`.

    Attributes:
        efficiency, deviation: label over all samples and its uncertainty, `[B, actions]`.
        times: seconds of a step whose action is chosen here, `[B, actions]`.
        base: throughput of the static action of the root's sampling setting, `[B]`.
        trajectories, prompts: numbers of one prompt's text at one setting, and of the prompt, `[B]`.
    """

    inputs: Inputs
    efficiency: Tensor
    deviation: Tensor
    times: Tensor
    base: Tensor
    trajectories: Tensor
    prompts: Tensor


@dataclass
class Roots(Dataset[Batch]):
    """Roots of one part; a list of indices gives one batch at once."""

    batch: Batch

    def __len__(self) -> int:
        return len(self.batch.base)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: list[int]) -> Batch:
        inputs, *rest = self.batch
        assert isinstance(inputs, Inputs)
        return Batch(Inputs(*(block[indices] for block in inputs)), *(column[indices] for column in rest))


class RootDataModule(pl.LightningDataModule):
    """Training and validation roots of one verifier under one machine's times.

    Attributes:
        best_static: the best static action of the training roots.
        static_throughput: its tokens a second on the validation roots, without the selector's cost.
    """

    def __init__(
        self, dataset: RootDataset, verifier: str, profile: LatencyProfile, splits: Splits, config: TrainConfig
    ) -> None:
        super().__init__()
        self.verifier, self.profile, self.config = verifier, profile, config
        rows = {part: splits.rows(dataset, part) for part in ("train", "validation")}
        space, context = dataset.manifest.space, dataset.context_length.double()
        static_times = profile.action_times(context, space)
        whole = _columns(dataset, verifier, profile, static_times, rows["train"])
        self.train_roots, self.validation_roots = (Roots(whole.__getitems__(rows[part])) for part in rows)
        train, validation = self.train_roots.batch, self.validation_roots.batch
        self.best_static = best_action(train.efficiency, static_times[rows["train"]], train.trajectories)
        always = torch.full((len(validation.base),), self.best_static)
        self.static_throughput = throughput_of(
            always, validation.efficiency, static_times[rows["validation"]], validation.trajectories
        )

    def train_dataloader(self) -> Any:
        """Shuffled anew every epoch, by seed and epoch alone, so that a resumed run sees the same batches."""
        trainer = self.trainer
        replicas, rank = (trainer.world_size, trainer.global_rank) if trainer else (1, 0)
        sampler: DistributedSampler[Batch] = DistributedSampler(
            self.train_roots, replicas, rank, shuffle=True, seed=self.config.seed
        )
        return DataLoader(self.train_roots, self.config.batch_size, sampler=sampler, collate_fn=_whole_batch)

    def val_dataloader(self) -> Any:
        """All validation roots in one batch."""
        return DataLoader(self.validation_roots, len(self.validation_roots), collate_fn=_whole_batch)


def _whole_batch(batch: Any) -> Any:
    """`Roots` collates by itself."""
    return batch


def _columns(
    dataset: RootDataset, verifier: str, profile: LatencyProfile, static_times: Tensor, train_rows: list[int]
) -> Roots:
    """All roots of the data set; whatever is fitted is fitted on the training rows."""
    context, efficiency = dataset.context_length.double(), dataset.mean_efficiency(verifier)
    train = torch.zeros(len(dataset), dtype=torch.bool)
    train[train_rows] = True
    place = {prompt: number for number, prompt in enumerate(dict.fromkeys(dataset.prompt_ids))}
    trajectories = torch.from_numpy(number_trajectories(dataset.prompt_ids, dataset.settings))
    actions = actions_per_setting(dataset.settings, efficiency, static_times, trajectories, train)[:, None]
    return Roots(
        Batch(
            inputs=network_inputs(dataset.hidden, dataset.scalars, context, profile),
            efficiency=efficiency,
            deviation=label_deviation(efficiency, dataset.standard_error[verifier], train),
            times=profile.selector_times(context, dataset.manifest.space).float(),
            base=(efficiency.gather(1, actions) / static_times.gather(1, actions))[:, 0].float(),
            trajectories=trajectories,
            prompts=torch.tensor([place[prompt] for prompt in dataset.prompt_ids]),
        )
    )
