"""Ray: the same work units on several replicas of the pair, on this machine or on a cluster (`RAY_ADDRESS`).

A replica is an actor that sends rows back; this process alone writes, so that the machines need no common disk. What
a lost replica was doing is done again by another one, with the same seeds and therefore the same rows.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from rich.console import Console

from data_gen.engines.local import Engine, LabelUnit, Outcome, PairFacts, Work, attempt, labeller
from data_gen.work_units import WorkUnit
from selector.config import Config
from selector.errors import UserError

MAX_LOSSES = 3  # a unit that takes so many replicas down with it has failed
CPU_WORKERS = 2  # without a GPU, unless `workers` says otherwise


def ray_engine(config: Config, workers: int, console: Console) -> AbstractContextManager[Engine]:
    """`workers` replicas; 0 is one for each GPU, or two on CPU. Raises UserError where Ray is not installed."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise UserError("engine is 'ray', which is not installed: `pip install ddte[ray]`.") from None
    if workers < 0:
        raise UserError(f"workers is {workers}: give 1 or more, or 0 for one a GPU.")
    return _session(config, workers, console)


@contextmanager
def _session(config: Config, workers: int, console: Console) -> Iterator[Engine]:
    """Ray without its dashboard and its usage statistics; a session that is open already is used and left open."""
    import ray

    opened = not ray.is_initialized()
    if opened:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield RayEngine(config, workers, console)
    finally:
        if opened:
            ray.shutdown()


class RayEngine:
    """See `Engine`. A replica has an equal share of the CPU cores and of the GPUs."""

    def __init__(self, config: Config, workers: int, console: Console) -> None:
        import ray

        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        cores, gpus = found.get("CPU", 1), found.get("GPU", 0)
        self.console = console
        self.workers = workers or int(gpus) or CPU_WORKERS
        share = gpus / self.workers
        self.options = {"num_cpus": min(1, cores / self.workers), "num_gpus": int(share) if share > 1 else share}
        threads = config.pair.threads or max(1, int(cores / self.workers))
        self.config = replace(config, pair=replace(config.pair, threads=threads))
        self.expected: PairFacts | None = None
        self.idle: list[Any] = []

    def facts(self) -> PairFacts:
        """See `Engine`: the first replica's, which all others must share."""
        first = self._start()
        facts: PairFacts = _answer(first.facts.remote())
        self.expected = facts
        self.idle.append(first)
        return facts

    def outcomes(self, work: Sequence[Work]) -> Iterator[Outcome]:
        """See `Engine`."""
        import ray

        waiting, losses = deque(work), Counter[int]()
        running: dict[Any, tuple[Any, Work]] = {}
        self.idle += [self._start() for _ in range(min(self.workers, len(work)) - len(self.idle))]
        while waiting or running:
            while waiting and self.idle:
                replica, task = self.idle.pop(), waiting.popleft()
                running[replica.run.remote(*task)] = replica, task
            (ready, *_), _ = ray.wait(list(running), num_returns=1)
            replica, task = running.pop(ready)
            outcome = self._outcome(ready, task, losses)
            self.idle.append(replica if outcome else self._start())
            if outcome:
                yield outcome
            elif losses[task[0]] < MAX_LOSSES:
                waiting.appendleft(task)
            else:
                yield Outcome(task[0], error=f"its worker was lost {MAX_LOSSES} times")

    def _start(self) -> Any:
        import ray

        return ray.remote(Replica).options(**self.options).remote(self.config, self.expected)

    def _outcome(self, ready: Any, task: Work, losses: Counter[int]) -> Outcome | None:
        """None where the replica is lost."""
        from ray.exceptions import RayError

        try:
            outcome: Outcome = _answer(ready)
            return outcome
        except RayError as error:
            losses[task[0]] += 1
            prompt = task[1].prompt.id
            self.console.print(f"a worker was lost ({type(error).__name__}) at prompt {prompt!r}", markup=False)
            return None


def _answer(ready: Any) -> Any:
    """What a replica answers; a UserError there is one here."""
    import ray
    from ray.exceptions import RayTaskError

    try:
        return ray.get(ready)
    except RayTaskError as error:
        raise (UserError(str(error.cause)) if isinstance(error.cause, UserError) else error.cause) from None


class Replica:
    """The actor: one pair, loaded when it is first needed."""

    def __init__(self, config: Config, expected: PairFacts | None) -> None:
        self.config, self.expected = config, expected

    @cached_property
    def _pair(self) -> Any:
        from selector.engine.huggingface import load_pair

        pair = load_pair(self.config.pair)
        facts = PairFacts.of(pair)
        if self.expected not in (None, facts):
            raise UserError(f"pair is {facts} for one worker and {self.expected} for another: they must be the same.")
        return pair

    @cached_property
    def _label(self) -> LabelUnit:
        return labeller(self.config, self._pair)

    def facts(self) -> PairFacts:
        """What the pair is."""
        return PairFacts.of(self._pair)

    def run(self, place: int, unit: WorkUnit) -> Outcome:
        """Do one unit."""
        return attempt(self._label, place, unit)
