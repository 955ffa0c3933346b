"""`ddte generate`: work units to a data set folder, resumable at any moment.

A unit's rows are one shard; the manifest with its journal is the only truth: what it does not call done is done
again, with the same seeds and therefore the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from data_gen.data_card import contents, setting_name, write_data_card
from data_gen.engines.local import Engine, LocalEngine, Outcome, PairFacts
from data_gen.estimate import estimate
from data_gen.prompts.prompts import load_prompts
from data_gen.work_units import WorkUnit, plan_units
from selector.artifacts.claims import claim_folder, known_settings, refuse_other_run, sole_writer
from selector.artifacts.origin import git_revision, versions
from selector.artifacts.writing import as_json
from selector.config import Config
from selector.dataset.manifest import FILE_NAME, SCHEMA, WITHOUT_MODELS, Manifest, Unit
from selector.dataset.parquet import checksum, is_whole
from selector.dataset.records import write_table
from selector.errors import UserError
from selector.features import SCALARS

if TYPE_CHECKING:
    from selector.engine.huggingface import Pair


def generate(
    config: Config,
    folder: Path | str,
    pair: Pair | None = None,
    console: Console | None = None,
    engine: str = "local",
    workers: int = 0,
) -> Manifest:
    """The data set in `folder`: made, or finished where an earlier call was interrupted.

    Nothing is loaded or written before the prompts, the folder and the disk have been checked. Units that fail are
    retried by the next call.

    Args:
        config: the whole configuration of a pair; `pair`, `action_space` and `generate` are read.
        folder: the data set's folder: new, empty, or of this very configuration.
        pair: the models of `config.pair`, where they are loaded already; for the local engine.
        console: where progress is printed.
        engine: `local`, or `ray` for several GPUs or machines.
        workers: Ray's replicas of the pair; 0 takes one a GPU, or two.

    Returns:
        The manifest: what the data set was made from, and its units of work.

    Raises:
        UserError: bad input, a folder that holds something else, or every unit failed.

    Example:
        >>> config = ddte.load_config("configs/quick.yaml")
        >>> manifest = ddte.generate_data(config, "runs/data")
    """
    folder, console = Path(folder), console or Console()
    opened = open_engine(config, console, pair, engine, workers)
    units = plan_units(config.generate, load_prompts(config.generate.prompts, config.generate.prompts_per_task))
    with sole_writer("out", folder):
        manifest = _open(config, folder, units)
        done = 0 if manifest is None else sum(unit.status == "done" for unit in manifest.units)
        if manifest is not None:
            console.print(f"{folder}: {done} of {len(units)} trajectories are there already and are skipped.")
            stored = known_settings(config.pair, manifest.config.get("pair", {}))
            if done == len(units) and manifest.complete and as_json(config.pair) == stored:
                return manifest
        console.print(estimate(config, len(units) - done, folder).describe())
        with opened as workforce:
            facts = workforce.facts()
            manifest = _start(config, folder, units, facts) if manifest is None else _go_on(manifest, folder, facts)
            left = [place for place, unit in enumerate(manifest.units) if unit.status != "done"]
            outcomes = workforce.outcomes([(place, units[place]) for place in left])
            collect(manifest, folder, outcomes, len(left), workforce.workers, console)
            return _finish(manifest, folder, units, console)


def open_engine(
    config: Config, console: Console, pair: Pair | None = None, engine: str = "local", workers: int = 0
) -> AbstractContextManager[Engine]:
    """The engine that the command line names. Raises UserError for one that is not there."""
    if engine == "ray":
        from data_gen.engines.ray import ray_engine

        return ray_engine(config, workers, console)
    if workers:
        raise UserError(f"workers is {workers}, but the local engine is one process: add `--engine ray`.")
    return nullcontext(LocalEngine(config, pair))


def _open(config: Config, folder: Path, units: list[WorkUnit]) -> Manifest | None:
    """The manifest of an interrupted or finished run of this very configuration; None for a new folder."""
    if not claim_folder("out", folder, FILE_NAME):
        return None
    manifest = Manifest.load(folder)
    for section in ("generate", "action_space"):
        refuse_other_run("out", folder, manifest.config.get(section, {}), getattr(config, section), f"{section}.")
    if [unit.id for unit in manifest.units] != [unit.id for unit in units]:
        raise UserError(f"out is {str(folder)!r}, which was made from other prompts: give another folder.")
    _reopen_lost(manifest, folder)
    return manifest


def _reopen_lost(manifest: Manifest, folder: Path) -> None:
    """Units whose shard is gone or damaged are pending again; the manifest on disk learns it when the work goes on."""
    for place, unit in enumerate(manifest.units):
        if unit.status == "done" and not is_whole(folder / "shards" / unit.shard, unit):
            manifest.units[place] = Unit(unit.id)
            manifest.complete = False


def _start(config: Config, folder: Path, units: list[WorkUnit], facts: PairFacts) -> Manifest:
    space = config.action_space
    manifest = Manifest(
        config=as_json(config),
        action_space=space.limits,
        verifiers=list(config.generate.verifiers),
        scalars=list(SCALARS),
        hidden_sizes=facts.hidden_sizes,
        target_fingerprint=facts.target_fingerprint,
        draft_fingerprint=facts.draft_fingerprint,
        models=facts.models,
        dtype=facts.dtype,
        draft_warp=config.generate.draft_warp,
        seed=config.generate.seed,
        versions=versions(),
        git_revision=git_revision(),
        units=[Unit(unit.id) for unit in units],
    )
    folder.mkdir(parents=True, exist_ok=True)
    manifest.save(folder)
    return manifest


def _go_on(manifest: Manifest, folder: Path, facts: PairFacts) -> Manifest:
    """The models must be those of the interrupted run; its journal becomes part of the manifest."""
    given = {name: value for name, value in vars(facts).items() if name != "models"}
    refuse_other_run("out", folder, {name: getattr(manifest, name) for name in given}, given)
    if manifest.schema <= WITHOUT_MODELS:
        manifest.models = facts.models
    manifest.schema = SCHEMA
    manifest.save(folder)
    return manifest


def collect(
    manifest: Manifest, folder: Path, outcomes: Iterable[Outcome], total: int, workers: int, console: Console
) -> None:
    """Write what comes. A unit is called done only after its shard lies there.

    A failure does not stop the run; a disk that cannot be written to does.
    """
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("trajectories", total=total)
        for number, outcome in enumerate(outcomes, 1):
            manifest.record(outcome.place, _store(manifest, outcome, folder), folder)
            progress.advance(bar)
            if number == 1 and total > 1:
                minutes = outcome.seconds * (total - 1) / workers / 60
                time_left = f"{minutes:.0f} minutes" if minutes >= 2 else f"{60 * minutes:.0f} seconds"
                progress.console.print(f"The first trajectory says about {time_left} for the others.")


def _store(manifest: Manifest, outcome: Outcome, folder: Path) -> Unit:
    identity = manifest.units[outcome.place].id
    if outcome.error:
        return Unit(identity, "failed", seconds=outcome.seconds, error=outcome.error)
    unit = Unit(identity, "done", f"part-{outcome.place:05d}.parquet", outcome.table.num_rows, outcome.seconds)
    path = folder / "shards" / unit.shard
    write_table(path, outcome.table, manifest.origin(unit))
    return replace(unit, checksum=checksum(path.read_bytes()))


def _finish(manifest: Manifest, folder: Path, units: list[WorkUnit], console: Console) -> Manifest:
    """Name the failures, call the data set complete and write its card."""
    failed = [(unit, state) for unit, state in zip(units, manifest.units, strict=True) if state.status == "failed"]
    for unit, state in failed:
        setting = setting_name(unit.sampling.temperature, unit.sampling.top_p)
        console.print(f"failed: prompt {unit.prompt.id!r} at {setting}: {state.error}", style="red", markup=False)
    if len(failed) == len(units):
        raise UserError(f"out is {str(folder)!r}: every trajectory failed, the first with {failed[0][1].error}.")
    write_data_card(manifest, contents(manifest, units), folder)
    manifest.complete = True
    manifest.save(folder)
    rows = sum(unit.rows for unit in manifest.units)
    console.print(f"{folder}: {rows} roots of {len(units) - len(failed)} trajectories; {len(failed)} failed.")
    return manifest
