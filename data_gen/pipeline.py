"""`ddte generate`: work units to a data set folder, resumable at any moment.

A unit's rows are one shard; the manifest with its journal is the only truth: what it does not call done is done
again, with the same seeds and therefore the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from rich.console import Console

from data_gen.data_card import contents, setting_name, write_data_card
from data_gen.engines.local import PairFacts, collect, open_engine, refuse_full_disk
from data_gen.estimate import estimate
from data_gen.prompts.prompts import load_prompts
from data_gen.work_units import WorkUnit, plan_units
from selector.artifacts import as_json, check_place, git_revision, known_settings, refuse_other_run, versions
from selector.config import Config
from selector.dataset.manifest import FILE_NAME, Manifest, Unit
from selector.dataset.parquet import count_rows
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
    """Make or finish the data set in `folder`; returns its manifest.

    Nothing is loaded or written before the prompts, the folder and the disk have been checked. `pair` saves the
    local engine loading `config.pair`. Units that fail are retried by the next call. Raises UserError for bad input,
    for a folder that holds something else, and when every unit failed.
    """
    folder, console = Path(folder), console or Console()
    opened = open_engine(config, console, pair, engine, workers)
    units = plan_units(config.generate, load_prompts(config.generate.prompts, config.generate.prompts_per_task))
    manifest = _open(config, folder, units)
    done = 0 if manifest is None else sum(unit.status == "done" for unit in manifest.units)
    if manifest is not None:
        console.print(f"{folder}: {done} of {len(units)} trajectories are there already and are skipped.")
        if (
            done == len(units)
            and manifest.complete
            and as_json(config.pair) == known_settings(config.pair, manifest.config.get("pair", {}))
        ):
            return manifest
    console.print(estimate(config, len(units) - done, folder).describe())
    with _alone(folder), opened as workforce:
        facts = workforce.facts()
        manifest = _start(config, folder, units, facts) if manifest is None else _go_on(manifest, folder, facts)
        left = [place for place, unit in enumerate(manifest.units) if unit.status != "done"]
        outcomes = workforce.outcomes([(place, units[place]) for place in left])
        collect(manifest, folder, outcomes, len(left), workforce.workers, console)
        return _finish(manifest, folder, units, console)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse a folder in which another run is at work. The lock lies beside it: a refused run leaves no folder."""
    lock = FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0)
    check_place("out", folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with lock:
            yield
    except Timeout:
        raise UserError(f"out is {str(folder)!r}, where another run is at work: wait for it, or stop it.") from None


def _open(config: Config, folder: Path, units: list[WorkUnit]) -> Manifest | None:
    """The manifest of an interrupted or finished run of this very configuration; None for a new folder."""
    if not (folder / FILE_NAME).exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"out is {str(folder)!r}, which holds other files: give a new or an empty folder.")
        return None
    manifest = Manifest.load(folder)
    for section in ("generate", "action_space"):
        given = getattr(config, section)
        stored = known_settings(given, manifest.config.get(section, {}))
        for name, value in as_json(given).items():
            refuse_other_run(folder, f"{section}.{name}", stored[name], value)
    if [unit.id for unit in manifest.units] != [unit.id for unit in units]:
        raise UserError(f"out is {str(folder)!r}, which was made from other prompts: give another folder.")
    _reopen_lost(manifest, folder)
    return manifest


def _reopen_lost(manifest: Manifest, folder: Path) -> None:
    """Units whose shard is gone or damaged are pending again; the manifest on disk learns it when the work goes on."""
    for place, unit in enumerate(manifest.units):
        if unit.status == "done" and count_rows(folder / "shards" / unit.shard) != unit.rows:
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
        dtype=facts.dtype,
        draft_warp=config.generate.draft_warp,
        seed=config.generate.seed,
        versions=versions(),
        git_revision=git_revision(),
        units=[Unit(unit.id) for unit in units],
    )
    with refuse_full_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        manifest.save(folder)
    return manifest


def _go_on(manifest: Manifest, folder: Path, facts: PairFacts) -> Manifest:
    """The models must be those of the interrupted run; its journal becomes part of the manifest."""
    refuse_other_run(folder, "the target's fingerprint", manifest.target_fingerprint, facts.target_fingerprint)
    refuse_other_run(folder, "the draft's fingerprint", manifest.draft_fingerprint, facts.draft_fingerprint)
    refuse_other_run(folder, "dtype", manifest.dtype, facts.dtype)
    with refuse_full_disk(folder):
        manifest.save(folder)
    return manifest


def _finish(manifest: Manifest, folder: Path, units: list[WorkUnit], console: Console) -> Manifest:
    """Name the failures, call the data set complete and write its card."""
    failed = [(unit, state) for unit, state in zip(units, manifest.units, strict=True) if state.status == "failed"]
    for unit, state in failed:
        setting = setting_name(unit.sampling.temperature, unit.sampling.top_p)
        console.print(f"failed: prompt {unit.prompt.id!r} at {setting}: {state.error}", style="red", markup=False)
    if len(failed) == len(units):
        raise UserError(f"out is {str(folder)!r}: every trajectory failed, the first with {failed[0][1].error}.")
    with refuse_full_disk(folder):
        write_data_card(manifest, contents(manifest, units), folder)
        manifest.complete = True
        manifest.save(folder)
    rows = sum(unit.rows for unit in manifest.units)
    console.print(f"{folder}: {rows} roots of {len(units) - len(failed)} trajectories; {len(failed)} failed.")
    return manifest
