"""Doing the work units of a run, whoever does them: outcomes come in any order, files are written here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from data_gen.labelling.label_unit import label_unit
from data_gen.work_units import WorkUnit
from selector.config import Config
from selector.dataset.manifest import Manifest, Unit
from selector.dataset.records import RootRecord, to_table, write_table
from selector.engine.prompts import encode_chat
from selector.errors import UserError
from selector.trees.expansion import ActionSpace

if TYPE_CHECKING:
    from selector.engine.huggingface import Pair

LabelUnit = Callable[[WorkUnit], list[RootRecord]]
Work = tuple[int, WorkUnit]  # a unit and its place in the manifest


@dataclass(frozen=True)
class PairFacts:
    """What the manifest says of the two models."""

    hidden_sizes: dict[str, int]
    target_fingerprint: str
    draft_fingerprint: str
    dtype: str

    @classmethod
    def of(cls, pair: Pair) -> PairFacts:
        sizes = {"target": pair.target.hidden_size, "draft": pair.draft.hidden_size}
        dtype = str(pair.dtype).removeprefix("torch.")
        return cls(sizes, pair.target.fingerprint, pair.draft.fingerprint, dtype)


@dataclass(frozen=True)
class Outcome:
    """What became of the unit at `place`: an arrow table of its rows, or `error`, the reason why there is none."""

    place: int
    table: Any = None
    error: str = ""
    seconds: float = 0.0


class Engine(Protocol):
    """Who does the work: `workers` replicas of the pair."""

    workers: int

    def facts(self) -> PairFacts:
        """Load the pair and say what it is."""
        ...

    def outcomes(self, work: Sequence[Work]) -> Iterator[Outcome]:
        """One outcome a unit, as they come."""
        ...


class LocalEngine:
    """One pair in this process."""

    workers = 1

    def __init__(self, config: Config, pair: Pair | None = None) -> None:
        self.config, self.pair = config, pair

    def facts(self) -> PairFacts:
        """See `Engine`."""
        if self.pair is None:
            from selector.engine.huggingface import load_pair

            self.pair = load_pair(self.config.pair)
        return PairFacts.of(self.pair)

    def outcomes(self, work: Sequence[Work]) -> Iterator[Outcome]:
        """See `Engine`; in the given order."""
        assert self.pair is not None
        label = labeller(self.config, self.pair)
        for place, unit in work:
            yield attempt(label, place, unit)


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


def labeller(config: Config, pair: Pair) -> LabelUnit:
    """What makes a unit's records with this pair."""
    space = ActionSpace(*astuple(config.action_space))

    def label(unit: WorkUnit) -> list[RootRecord]:
        tokens = encode_chat(pair.tokenizer, unit.prompt.messages, config.generate.chat_template)
        check_positions(pair, len(tokens), config.generate.max_new_tokens, space.limits.max_depth)
        return label_unit(pair.target, pair.draft, tokens, unit, config.generate, space, pair.end_ids)

    return label


def check_positions(pair: Pair, prompt_length: int, max_new_tokens: int, depth: int) -> None:
    """Refuse a prompt whose trajectory, or a tree at its end, could pass the positions of one of the models."""
    needed = prompt_length + max_new_tokens + depth
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        if model.max_length is not None and needed > model.max_length:
            raise UserError(
                f"the prompt has {prompt_length} tokens, and with {max_new_tokens} new ones and trees of depth {depth} "
                f"it could pass the {model.max_length} positions of the {name}"
            )


def attempt(label: LabelUnit, place: int, unit: WorkUnit) -> Outcome:
    """Do one unit; a failure is an outcome as well."""
    start = time.perf_counter()
    try:
        table = to_table(label(unit))
    except Exception as error:
        return Outcome(place, error=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - start)
    return Outcome(place, table, seconds=time.perf_counter() - start)


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
            with refuse_full_disk(folder):
                manifest.record(outcome.place, _store(manifest.units[outcome.place].id, outcome, folder), folder)
            progress.advance(bar)
            if number == 1 and total > 1:
                minutes = outcome.seconds * (total - 1) / workers / 60
                time_left = f"{minutes:.0f} minutes" if minutes >= 2 else f"{60 * minutes:.0f} seconds"
                progress.console.print(f"The first trajectory says about {time_left} for the others.")


@contextmanager
def refuse_full_disk(folder: Path) -> Iterator[None]:
    """One sentence for a data set that cannot be written to; what is done already stays."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"out is {str(folder)!r}, where writing failed ({error}): make room, and start the same run again."
        ) from None


def _store(identity: str, outcome: Outcome, folder: Path) -> Unit:
    if outcome.error:
        return Unit(identity, "failed", seconds=outcome.seconds, error=outcome.error)
    shard = f"part-{outcome.place:05d}.parquet"
    write_table(folder / "shards" / shard, outcome.table)
    return Unit(identity, "done", shard, outcome.table.num_rows, outcome.seconds)
