"""Checkpoints of a run: made from trained networks, and copied out as folders that decoding loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from selector.artifacts.claims import claim_folder, sole_writer
from selector.artifacts.loading import read_json
from selector.artifacts.origin import git_revision, versions
from selector.dataset.manifest import Manifest
from selector.errors import UserError
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.checkpoint_config import HEADS, CheckpointConfig, Head
from selector.network.network import SelectorNetwork
from selector.training.card import FIGURE_COLUMNS, model_card
from selector.training.data import RootDataModule
from selector.training.module import realised_throughputs
from selector.training.run_folder import RunFolder
from selector.training.selection import Model

METRICS_REMEDY = "make it with `ddte evaluate`"


def to_checkpoint(
    network: SelectorNetwork, manifest: Manifest, data: RootDataModule, model: Model
) -> SelectorCheckpoint:
    """The checkpoint; the head with the higher throughput on the validation prompts is its default.

    Its metric `learned` is 0 for a network that chooses as the best static action does, `corrected` 1 where the MLP
    was worth keeping.
    """
    realised = realised_throughputs(network.cpu().eval(), data.validation, data.validation_roots)
    default: Head = max(HEADS, key=lambda head: realised[head])
    metrics = {f"validation_throughput_{head}": value for head, value in realised.items()}
    metrics["validation_throughput_static"] = data.static_throughput
    metrics["validation_ratio_to_static"] = realised[default] / data.static_throughput
    metrics["learned"] = float(model != "static")
    metrics["corrected"] = float(model == "mlp")
    metrics["train_roots"] = float(len(data.train_roots))
    metrics["validation_roots"] = float(len(data.validation_roots))
    temperatures, top_ps = zip(*data.train_roots.setting_values, strict=True)  # of validation too
    config = CheckpointConfig(
        verifier=data.verifier,
        shape=network.shape,
        scalars=list(manifest.scalars),
        default_head=default,
        target_fingerprint=manifest.target_fingerprint,
        draft_fingerprint=manifest.draft_fingerprint,
        draft_warp=manifest.draft_warp,
        sampling_range={
            "temperature": [min(temperatures), max(temperatures)],
            "top_p": [min(top_ps), max(top_ps)],
        },
        profile=asdict(data.profile),
        best_static=manifest.space.drafted[data.best_static],
        data_hash=manifest.hash(),
        metrics=metrics,
        versions=versions(),
        git_revision=git_revision(),
        models=manifest.models,
    )
    return SelectorCheckpoint(network, config)


def export(
    run_folder: Path | str, out_folder: Path | str, metrics: Path | None = None, hub_code: bool = False
) -> list[Path]:
    """Write `out_folder/<verifier>/` for each selector of a run, with a model card.

    All selectors and all output folders are checked before the first is written.

    Args:
        run_folder: a run of `train`.
        out_folder: a new folder, or one that holds other checkpoints alone.
        metrics: a `metrics.json` of `evaluate`, for the held-out figures of the cards.
        hub_code: add the code by which a folder works as `generate(custom_generate=...)` of transformers.

    Returns:
        The checkpoint folders, one a verifier.

    Raises:
        UserError: a folder that holds no finished run, metrics of another run, an output folder that holds other files.

    Example:
        >>> folders = ddte.export("run", "selectors", Path("report/metrics.json"))
        >>> ddte.SelectorCheckpoint.load(folders[0])
    """
    run, out = RunFolder(Path(run_folder)), Path(out_folder)
    selectors = {verifier: run.selector(verifier) for verifier in run.verifiers}
    rows = _metric_rows(metrics, list(selectors.values())) if metrics else None
    cards = {verifier: model_card(selector.config, rows, hub_code) for verifier, selector in selectors.items()}
    with sole_writer("out", out):
        claim_folder("out", out, beside={*selectors, *(file.parent.name for file in out.glob("*/model.safetensors"))})
        there = {verifier for verifier, selector in selectors.items() if _is_exported(selector, out / verifier)}
        left = [verifier for verifier in selectors if verifier not in there] or list(selectors)
        for verifier in left:
            claim_folder("out", out / verifier)
        for verifier in left:
            selectors[verifier].save(out / verifier, cards[verifier], hub_code)
    return [out / verifier for verifier in selectors]


def _is_exported(selector: SelectorCheckpoint, folder: Path) -> bool:
    """Whether an export that was stopped has written it already."""
    return (folder / "config.json").exists() and SelectorCheckpoint.load(folder).config == selector.config


def _metric_rows(path: Path, selectors: Sequence[SelectorCheckpoint]) -> list[dict[str, Any]]:
    """The rows of a `metrics.json`, each with all that a card shows; a UserError for those of another run.

    Which selectors they are of stands beside them in `selectors.json`; an earlier version wrote none.
    """
    measured = path.with_name("selectors.json")
    if measured.exists():
        known = read_json(measured, METRICS_REMEDY)
        for selector in selectors:
            if selector.identity not in known:
                config = selector.config
                raise UserError(
                    f"metrics '{path}' are of other selectors than {config.verifier} of this run (target "
                    f"{config.target_fingerprint}, draft {config.draft_fingerprint}): {METRICS_REMEDY} of this run."
                )
    rows = read_json(path, METRICS_REMEDY)
    if not isinstance(rows, list):
        raise UserError(f"metrics '{path}' is not a list of rows: {METRICS_REMEDY}.")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise UserError(f"row {number} of metrics '{path}' is no row of figures: {METRICS_REMEDY}.")
        missing = [name for name in ("verifier", *FIGURE_COLUMNS) if name not in row]
        if missing:
            raise UserError(f"row {number} of metrics '{path}' has no {missing[0]}: {METRICS_REMEDY}.")
    return rows
