"""Checkpoints on the Hugging Face hub; huggingface_hub is imported only where one is fetched or published."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selector.errors import UserError, first_line
from selector.network.checkpoint_config import CheckpointConfig

FILES = ("config.json", "model.safetensors", "README.md")
REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def is_repository(name: str) -> bool:
    """Whether `name` looks like `user/name` of the hub, and no folder of that name is here."""
    return REPOSITORY.fullmatch(name) is not None and not Path(name).is_dir()


def fetch(name: str, revision: str | None) -> Path:
    """The folder of a repository's checkpoint in the hub's cache. Raises UserError where the hub has none to give."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except (OSError, ValueError) as error:
        raise UserError(
            f"checkpoint is {name!r}: no such folder, and it cannot be had from the hub ({first_line(error)}); give a "
            "folder of `ddte export`, or user/name of a repository."
        ) from None


def publish(folder: Path, name: str, private: bool) -> str:
    """Upload a checkpoint's files into the repository `name`, made if need be; returns its address."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=list(FILES))
    except Exception as error:  # the hub's client hands on errors of its HTTP library, which differs between versions
        raise UserError(
            f"repo_id is {name!r}: the hub does not take it ({first_line(error)}); log in with `hf auth login`, or "
            "give a repository that you may write to."
        ) from None
    return str(address)


def with_metadata(
    card: str, name: str, config: CheckpointConfig, base_model: Sequence[str], licence: str, datasets: Sequence[str]
) -> str:
    """The card with the hub's metadata: models, licence, data sets, and the figure on the validation prompts."""
    from huggingface_hub import EvalResult, ModelCard

    model_card = ModelCard(card)
    data: Any = model_card.data
    data.base_model, data.license = list(base_model), licence
    data.datasets = list(datasets) or None
    ratio = config.metrics.get("validation_ratio_to_static")
    if ratio is not None:
        data.model_name = name.rpartition("/")[2]
        data.eval_results = [
            EvalResult(
                task_type="text-generation",
                dataset_type="ddte",
                dataset_name=f"validation prompts of data set {config.data_hash[:16]}",
                metric_type="ratio_to_best_static",
                metric_name="throughput over the best static tree, from labels and pass times",
                metric_value=ratio,
            )
        ]
    return str(model_card)
