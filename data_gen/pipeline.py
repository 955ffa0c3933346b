"""`ddte generate`: work units to a data set folder, resumable at any moment.

A unit's rows are one shard; the manifest is saved after each and is the only truth: what it does not call done is
done again, with the same seeds and therefore the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from data_gen.data_card import write_data_card
from data_gen.estimate import estimate
from data_gen.prompts import load_prompts, render
from data_gen.roots import label_unit
from data_gen.units import WorkUnit, plan_units
from selector.config import Config
from selector.errors import UserError
from selector.features import SCALARS
from selector.manifest import FILE_NAME, Manifest, Unit
from selector.provenance import as_json, git_revision, versions
from selector.records import RootRecord, write_shard
from selector.trees.expansion import ActionSpace

if TYPE_CHECKING:
    from selector.engine.huggingface import Pair

LabelUnit = Callable[[WorkUnit], list[RootRecord]]


def generate(config: Config, folder: Path | str, pair: Pair | None = None, console: Console | None = None) -> Manifest:
    """Make or finish the data set in `folder`; returns its manifest.

    Nothing is loaded or written before the prompts, the folder and the disk have been checked. `pair` saves
    loading `config.pair`. Units that fail are retried by the next call. Raises UserError for bad input, for a
    folder that holds something else, and when every unit failed.
    """
    folder, console = Path(folder), console or Console()
    units = plan_units(config.generate, load_prompts(config.generate.prompts, config.generate.prompts_per_task))
    manifest = _open(config, folder, units)
    done = 0 if manifest is None else sum(unit.status == "done" for unit in manifest.units)
    if manifest is not None:
        console.print(f"{folder}: {done} of {len(units)} trajectories are there already and are skipped.")
        if done == len(units) and manifest.complete and asdict(config.pair) == manifest.config["pair"]:
            return manifest
    console.print(estimate(config, len(units) - done, folder).describe())
    if pair is None:
        from selector.engine.huggingface import load_pair

        pair = load_pair(config.pair)
    manifest = _start(config, folder, units, pair) if manifest is None else _check_pair(manifest, folder, pair)
    _work(manifest, folder, units, _labeller(config, pair), console)
    return _finish(manifest, folder, units, console)


def _open(config: Config, folder: Path, units: list[WorkUnit]) -> Manifest | None:
    """The manifest of an interrupted or finished run of this very configuration; None for a new folder."""
    if not (folder / FILE_NAME).exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"out is {str(folder)!r}, which holds other files: give a new or an empty folder.")
        return None
    manifest = Manifest.load(folder)
    stored, given = manifest.config, as_json(config)
    for section in ("generate", "action_space"):
        for name, value in given[section].items():
            _refuse_other(folder, f"{section}.{name}", stored.get(section, {}).get(name), value)
    if [unit.id for unit in manifest.units] != [unit.id for unit in units]:
        raise UserError(f"out is {str(folder)!r}, which was made from other prompts: give another folder.")
    _reopen_lost(manifest, folder)
    return manifest


def _reopen_lost(manifest: Manifest, folder: Path) -> None:
    """Units whose shard is gone are pending again; the manifest on disk learns it with the next unit's save."""
    for place, unit in enumerate(manifest.units):
        if unit.status == "done" and not (folder / "shards" / unit.shard).is_file():
            manifest.units[place] = Unit(unit.id)
            manifest.complete = False


def _refuse_other(folder: Path, name: str, stored: Any, given: Any) -> None:
    if stored != given:
        message = f"out is {str(folder)!r}, which holds another run ({name} is {stored!r} there and {given!r} here)"
        raise UserError(f"{message}: give another folder, or the same configuration.")


def _start(config: Config, folder: Path, units: list[WorkUnit], pair: Pair) -> Manifest:
    space = config.action_space
    manifest = Manifest(
        config=as_json(config),
        action_space=(space.num_branches, space.trunk_length, space.branch_length),
        verifiers=list(config.generate.verifiers),
        scalars=list(SCALARS),
        hidden_sizes={"target": pair.target.hidden_size, "draft": pair.draft.hidden_size},
        target_fingerprint=pair.target.fingerprint,
        draft_fingerprint=pair.draft.fingerprint,
        dtype=_dtype_name(pair),
        draft_warp=config.generate.draft_warp,
        seed=config.generate.seed,
        versions=versions(),
        git_revision=git_revision(),
        units=[Unit(unit.id) for unit in units],
    )
    folder.mkdir(parents=True, exist_ok=True)
    manifest.save(folder)
    return manifest


def _check_pair(manifest: Manifest, folder: Path, pair: Pair) -> Manifest:
    _refuse_other(folder, "the target's fingerprint", manifest.target_fingerprint, pair.target.fingerprint)
    _refuse_other(folder, "the draft's fingerprint", manifest.draft_fingerprint, pair.draft.fingerprint)
    _refuse_other(folder, "dtype", manifest.dtype, _dtype_name(pair))
    return manifest


def _dtype_name(pair: Pair) -> str:
    return str(pair.dtype).removeprefix("torch.")


def _labeller(config: Config, pair: Pair) -> LabelUnit:
    space = ActionSpace(*asdict(config.action_space).values())

    def label(unit: WorkUnit) -> list[RootRecord]:
        tokens = render(unit.prompt, pair.tokenizer, config.generate.chat_template)
        return label_unit(pair.target, pair.draft, tokens, unit, config.generate, space, pair.end_ids)

    return label


def _work(manifest: Manifest, folder: Path, units: list[WorkUnit], label: LabelUnit, console: Console) -> None:
    """Run what is not done. The manifest is saved after each unit, and only after its shard lies there."""
    left = [place for place, unit in enumerate(manifest.units) if unit.status != "done"]
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("trajectories", total=len(left))
        for number, place in enumerate(left, 1):
            manifest.units[place] = _run_unit(units[place], folder, f"part-{place:05d}.parquet", label)
            _save(manifest, folder)
            progress.advance(bar)
            if number == 1 and len(left) > 1:
                minutes = manifest.units[place].seconds * (len(left) - 1) / 60
                time_left = f"{minutes:.0f} minutes" if minutes >= 2 else f"{60 * minutes:.0f} seconds"
                progress.console.print(f"The first trajectory says about {time_left} for the others.")


def _run_unit(unit: WorkUnit, folder: Path, shard: str, label: LabelUnit) -> Unit:
    """A failure is recorded with its reason and does not stop the run; a disk that cannot be written to does."""
    start = time.perf_counter()
    try:
        records = label(unit)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Unit(unit.id, "failed", seconds=time.perf_counter() - start, error=reason)
    try:
        write_shard(folder / "shards" / shard, records)
    except OSError as error:
        raise UserError(
            f"shard {shard} cannot be written ({error}): make room, and start the same run again."
        ) from None
    return Unit(unit.id, "done", shard, len(records), time.perf_counter() - start)


def _save(manifest: Manifest, folder: Path) -> None:
    try:
        manifest.save(folder)
    except OSError as error:
        raise UserError(f"{FILE_NAME} cannot be written ({error}): make room, and start the same run again.") from None


def _finish(manifest: Manifest, folder: Path, units: list[WorkUnit], console: Console) -> Manifest:
    """Name the failures, call the data set complete and write its card."""
    failed = [(unit, state) for unit, state in zip(units, manifest.units, strict=True) if state.status == "failed"]
    for unit, state in failed:
        setting = f"temperature {unit.sampling.temperature}, top-p {unit.sampling.top_p}"
        console.print(f"failed: prompt {unit.prompt.id!r} at {setting}: {state.error}", style="red", markup=False)
    if len(failed) == len(units):
        raise UserError(f"out is {str(folder)!r}: every trajectory failed, the first with {failed[0][1].error}.")
    manifest.complete = True
    _save(manifest, folder)
    write_data_card(manifest, units, folder)
    rows = sum(unit.rows for unit in manifest.units)
    console.print(f"{folder}: {rows} roots of {len(units) - len(failed)} trajectories; {len(failed)} failed.")
    return manifest
