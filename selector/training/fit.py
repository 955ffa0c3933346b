"""Train one selector a verifier on a data set, under one machine's times."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only
from rich.console import Console

from selector.artifacts.claims import sole_writer
from selector.artifacts.origin import content_hash
from selector.config import TrainConfig
from selector.dataset.dataset import RootDataset
from selector.dataset.manifest import Manifest
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.network import NetworkShape
from selector.offline.baselines import oracle_gap
from selector.offline.labelled_roots import build_roots
from selector.training.card import model_card
from selector.training.data import RootDataModule
from selector.training.export import to_checkpoint
from selector.training.figures import final_figures
from selector.training.loggers import build_loggers, log_end
from selector.training.module import MONITOR, SelectorModule
from selector.training.preflight import check_config
from selector.training.progress import EpochProgress, print_gaps, print_results, print_splits
from selector.training.run_folder import RunFolder, open_run
from selector.training.selection import keep_best
from selector.training.splits import split_prompts
from selector.training.state import WholeStates, read_state
from selector.trees.verifiers import MIXED


def train(
    dataset_folder: Path | str,
    profile: LatencyProfile,
    config: TrainConfig,
    run_folder: Path | str,
    console: Console | None = None,
) -> RunFolder:
    """A selector for each of `config.verifiers`, trained into a run folder.

    A run that was interrupted goes on where it stopped, and repeats the curve it would have had; one that has
    ended is left as it is. Nothing is written before data set, configuration and run folder are found good.

    With `strategy="ddp"` Lightning starts the other processes with this process's own command line. They come
    here while the first one waits for them in its first fit; only the first writes and prints.

    Args:
        dataset_folder: a data set of `ddte.generate_data`.
        profile: pass times of the machine that the selector is for.
        config: settings of training.
        run_folder: new, empty, or of this very run.
        console: where progress is printed.

    Returns:
        The run folder; `selector(verifier)` is a trained checkpoint, `splits.test` are the held-out prompts.

    Raises:
        UserError: a damaged data set, a verifier without labels, too few prompts, a folder of another run.

    Example:
        >>> profile = ddte.measure_profile(ddte.load_pair(config.pair), action_space=config.action_space.limits)
        >>> run = ddte.train("runs/data", profile, config.train, "runs/train")
    """
    console = (console or Console()) if leads() else Console(quiet=True)
    check_config(config)
    dataset = RootDataset.load(dataset_folder)
    check_config(config, dataset.manifest)
    profile.check_pair(dataset.manifest.target_fingerprint, dataset.manifest.draft_fingerprint)
    with sole_writer("out", Path(run_folder)) if leads() else nullcontext():
        run = open_run(Path(run_folder), config, dataset.manifest, profile, split_prompts(dataset, config))
        _train_left(run, dataset, profile, config, console)
    if leads():
        print_results(console, {verifier: run.selector(verifier) for verifier in config.verifiers})
    return run


def _train_left(
    run: RunFolder, dataset: RootDataset, profile: LatencyProfile, config: TrainConfig, console: Console
) -> None:
    splits = run.splits  # a run that goes on keeps those of its start
    print_splits(console, splits, dataset)
    seen = dataset.subset(splits.rows(dataset, "train") + splits.rows(dataset, "validation"))
    gaps = {verifier: oracle_gap(build_roots(seen, verifier, profile)) for verifier in config.verifiers}
    print_gaps(console, gaps)
    test = dataset.subset(splits.rows(dataset, "test"))
    for verifier in config.verifiers:
        if not run.is_done(verifier):
            data = RootDataModule(dataset, verifier, profile, splits, config)
            figures = partial(final_figures, gap=gaps[verifier], test=test, profile=profile)
            _train_one(run, dataset.manifest, data, config, console, figures)


def leads() -> bool:
    """Whether this is the first, or the only, process of the run."""
    return getattr(rank_zero_only, "rank", 0) == 0


def _train_one(
    run: RunFolder,
    manifest: Manifest,
    data: RootDataModule,
    config: TrainConfig,
    console: Console,
    figures: Callable[[SelectorCheckpoint], dict[str, float]],
) -> None:
    """Train, choose, log `figures` of the checkpoint, and save it."""
    pl.seed_everything(config.seed, workers=True, verbose=False)
    folder = run.verifier_folder(data.verifier)
    module = SelectorModule(network_shape(manifest, data.verifier, config), config)
    module.fit_statistics(data)
    network = copy.deepcopy(module.network)
    folder.mkdir(exist_ok=True)
    settings = asdict(config) | {"verifier": data.verifier}
    loggers = _fit(module, data, folder, settings, console)
    module.load_state_dict(read_state(folder / "best.ckpt", module)["state_dict"])
    model = keep_best(network, module.network.state_dict(), data)
    checkpoint = to_checkpoint(network, manifest, data, model)
    if leads() and len(loggers) > 1:
        log_end(loggers, settings, figures(checkpoint), data.profile)
    if leads():
        checkpoint.save(run.selector_folder(data.verifier), model_card(checkpoint.config))


def network_shape(manifest: Manifest, verifier: str, config: TrainConfig) -> NetworkShape:
    """The shape that fits the data set and the verifier."""
    return NetworkShape(
        target_hidden=manifest.hidden_sizes["target"],
        draft_hidden=manifest.hidden_sizes["draft"],
        num_scalars=len(manifest.scalars),
        action_space=manifest.action_space,
        components=config.components,
        hidden_sizes=config.hidden_sizes,
        dropout=config.dropout,
        inputs=config.inputs,
        mixed=verifier in MIXED,
    )


def _fit(
    module: SelectorModule, data: RootDataModule, folder: Path, settings: dict[str, Any], console: Console
) -> list[Logger]:
    """Train until early stopping or the last epoch, from where a run stopped; the loggers, W&B's run still open."""
    config, last, stopped = data.config, folder / "last.ckpt", False
    if last.exists():
        read_state(folder / "best.ckpt", module)
        stopped = _has_stopped(read_state(last, module), config)
    loggers = build_loggers(config, folder, content_hash([str(folder.resolve()), settings])[:16], settings)
    if stopped:
        return loggers
    with warnings.catch_warnings(), EpochProgress(console, data) as progress:
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        warnings.filterwarnings("ignore", module="lightning_fabric")
        logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
        trainer = pl.Trainer(
            accelerator=config.accelerator,
            devices=config.devices,
            strategy=config.strategy,
            precision=config.precision,
            use_distributed_sampler=False,  # the data module shards by itself; every process validates on all roots
            max_epochs=config.max_epochs,
            gradient_clip_val=1.0,
            deterministic="warn",
            logger=loggers,
            callbacks=[*_callbacks(folder, config), progress],
            plugins=[WholeStates()],
            default_root_dir=folder,
            log_every_n_steps=1,
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, datamodule=data, ckpt_path=last if last.exists() else None, weights_only=True)
    return loggers


def _callbacks(folder: Path, config: TrainConfig) -> list[Callback]:
    """Early stopping comes first and the last state at the end, so that it holds what the others know."""
    return [
        EarlyStopping(MONITOR, mode="max", patience=config.patience),
        ModelCheckpoint(folder, "best", MONITOR, mode="max", enable_version_counter=False),
        ModelCheckpoint(folder, "last", enable_version_counter=False),
    ]


def _has_stopped(state: dict[str, Any], config: TrainConfig) -> bool:
    """Whether early stopping had ended the fit before the run was interrupted."""
    callbacks = state["callbacks"]
    waited = [state["wait_count"] for name, state in callbacks.items() if name.startswith("EarlyStopping")]
    return bool(waited) and waited[0] >= config.patience
