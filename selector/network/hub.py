"""Checkpoints on the Hugging Face hub; huggingface_hub is imported only where one is fetched or published."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selector.errors import UserError, first_line
from selector.hub import find_model
from selector.network.checkpoint_config import CheckpointConfig
from selector.network.hub_code import FOLDER
from selector.pair_names import licence_keys

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

FILES = ("config.json", "model.safetensors", "README.md")
FIGURES = {  # of a selector, for the card's metadata
    "ratio_to_plain": "throughput over plain generation, from labels and pass times",
    "ratio_to_best_static": "throughput over the best static tree, from labels and pass times",
}
REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def is_repository(name: str) -> bool:
    """Whether `name` looks like `user/name` of the hub, and no folder of that name is here."""
    return REPOSITORY.fullmatch(name) is not None and not Path(name).is_dir()


def fetch(name: str, revision: str | None) -> Path:
    """The folder of a repository's checkpoint in the hub's cache. Raises UserError where neither has one to give."""
    from huggingface_hub import snapshot_download

    found = find_model("checkpoint", name, revision or "")
    assert found is not None  # no folder
    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES), **found.options))
    except (OSError, ValueError) as error:
        raise UserError(
            f"checkpoint is {name!r}, whose files cannot be had from the hub ({first_line(error)}): try again, or give "
            "a folder of `ddte export`."
        ) from None


def publish(folder: Path, name: str, private: bool) -> str:
    """Upload a checkpoint's files into the repository `name`, made if need be; returns its address."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=[*FILES, f"{FOLDER}/*"])
    except Exception as error:  # the hub's client hands on errors of its HTTP library, which differs between versions
        raise UserError(
            f"repo_id is {name!r}: the hub does not take it ({first_line(error)}); log in with `hf auth login`, or "
            "give a repository that you may write to."
        ) from None
    return str(address)


def card_data(config: CheckpointConfig, rows: Sequence[Mapping[str, Any]] = ()) -> ModelCardData:
    """The metadata of a selector's card; `rows` of `metrics.json` are figures of its verifier on held-out prompts."""
    from huggingface_hub import EvalResult, ModelCardData

    def result(split: str, prompts: str, metric: str, value: float) -> EvalResult:
        figure = {"metric_type": metric, "metric_name": FIGURES[metric], "metric_value": value}
        return EvalResult("text-generation", "ddte", prompts, dataset_split=split, **figure)  # type: ignore[arg-type]

    results = [
        result("test", "held-out prompts", row["metric"], row["value"])
        for row in rows
        if row["policy"] == f"selector_{config.default_head}" and row["metric"] in FIGURES and row["value"] is not None
    ]
    if "validation_ratio_to_static" in config.metrics:
        prompts = f"validation prompts of data set {config.data_hash[:16]}"
        results.append(
            result("validation", prompts, "ratio_to_best_static", config.metrics["validation_ratio_to_static"])
        )
    return ModelCardData(
        base_model=config.models.base_model or None,
        eval_results=results or None,
        library_name="ddte",
        model_name=f"{config.verifier}-selector" if results else None,
        tags=["speculative-decoding", "draft-tree-selector"],
        **licence_keys(config.models.licence),
    )


def with_metadata(
    card: str, name: str, config: CheckpointConfig, base_model: Sequence[str], licence: str, datasets: Sequence[str]
) -> str:
    """The card as the repository `name` shows it; what an earlier version left out of its metadata is filled in."""
    from huggingface_hub import ModelCard

    model_card = ModelCard(card)
    data: Any = model_card.data
    for key, value in vars(card_data(config)).items():
        if data.get(key) is None:
            data[key] = value
    data.base_model, data.datasets = list(base_model), list(datasets) or None
    data.license_name = None
    for key, value in licence_keys(licence).items():
        data[key] = value
    if data.eval_results:
        data.model_name = name.rpartition("/")[2]
    return str(model_card)
