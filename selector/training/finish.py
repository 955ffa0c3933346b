"""From a trained network to the checkpoint that decoding loads."""

from __future__ import annotations

from dataclasses import asdict

from torch import Tensor

from selector.artifacts import git_revision, versions
from selector.config import TrainConfig
from selector.dataset.records import RootDataset
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.checkpoint_config import HEADS, CheckpointConfig, Head
from selector.network.network import NetworkShape, SelectorNetwork
from selector.training.data import RootDataModule
from selector.training.module import realised_throughputs
from selector.training.selection import Kept


def network_shape(dataset: RootDataset, config: TrainConfig) -> NetworkShape:
    """The shape that fits the data set."""
    manifest = dataset.manifest
    return NetworkShape(
        target_hidden=manifest.hidden_sizes["target"],
        draft_hidden=manifest.hidden_sizes["draft"],
        num_scalars=len(manifest.scalars),
        action_space=manifest.action_space,
        components=config.components,
        hidden_sizes=config.hidden_sizes,
        dropout=config.dropout,
        inputs=config.inputs,
    )


def finished_selector(
    network: SelectorNetwork, dataset: RootDataset, data: RootDataModule, kept: Kept
) -> SelectorCheckpoint:
    """The checkpoint; the head with the higher throughput on the validation prompts is its default.

    Its metric `learned` is 0 for a network that chooses as the best static action does, `corrected` 1 where the MLP
    was worth keeping.
    """
    manifest = dataset.manifest
    realised = realised_throughputs(network.cpu().eval(), data.validation_roots.batch)
    default: Head = max(HEADS, key=lambda head: realised[head])
    metrics = {f"validation_throughput_{head}": value for head, value in realised.items()}
    metrics["validation_throughput_static"] = data.static_throughput
    metrics["validation_ratio_to_static"] = realised[default] / data.static_throughput
    metrics["learned"] = float(kept != "static")
    metrics["corrected"] = float(kept == "trained")
    metrics["train_roots"] = float(len(data.train_roots))
    metrics["validation_roots"] = float(len(data.validation_roots))
    config = CheckpointConfig(
        verifier=data.verifier,
        shape=network.shape,
        scalars=list(manifest.scalars),
        default_head=default,
        target_fingerprint=manifest.target_fingerprint,
        draft_fingerprint=manifest.draft_fingerprint,
        draft_warp=manifest.draft_warp,
        sampling_range={
            "temperature": _range(dataset.settings[:, 0]),
            "top_p": _range(dataset.settings[:, 1]),
        },
        profile=asdict(data.profile),
        best_static=manifest.space.expansions[data.best_static],
        data_hash=manifest.hash(),
        metrics=metrics,
        versions=versions(),
        git_revision=git_revision(),
    )
    return SelectorCheckpoint(network, config)


def _range(values: Tensor) -> list[float]:
    return [round(float(values.min()), 6), round(float(values.max()), 6)]
