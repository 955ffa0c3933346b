"""Engines that label work units: the protocol, and the one in this process (see `ray` for replicas)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Protocol

from data_gen.labelling.below import deepest
from data_gen.labelling.label_unit import label_unit
from data_gen.work_units import WorkUnit
from selector.config import Config
from selector.dataset.records import RootRecord, to_table
from selector.engine.huggingface import Pair, check_placement, load_pair
from selector.engine.prompts import encode_chat
from selector.errors import UserError
from selector.pair_names import PairNames
from selector.trees.expansion import ActionSpace

LabelUnit = Callable[[WorkUnit], list[RootRecord]]
Work = tuple[int, WorkUnit]  # a unit and its place in the manifest


@dataclass(frozen=True)
class PairFacts:
    """What the manifest says of the two models."""

    hidden_sizes: dict[str, int]
    target_fingerprint: str
    draft_fingerprint: str
    dtype: str
    models: PairNames = field(compare=False)  # two machines may have one model in different folders

    @classmethod
    def of(cls, pair: Pair) -> PairFacts:
        sizes = {"target": pair.target.hidden_size, "draft": pair.draft.hidden_size}
        dtype = str(pair.dtype).removeprefix("torch.")
        return cls(sizes, pair.target.fingerprint, pair.draft.fingerprint, dtype, pair.names)


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
    """One pair in this process. Raises UserError for a device that it cannot use, before anything is fetched."""

    workers = 1

    def __init__(self, config: Config, pair: Pair | None = None) -> None:
        if pair is None:
            check_placement(config.pair)
        self.config, self.pair = config, pair

    def facts(self) -> PairFacts:
        """See `Engine`."""
        if self.pair is None:
            self.pair = load_pair(self.config.pair)
        return PairFacts.of(self.pair)

    def outcomes(self, work: Sequence[Work]) -> Iterator[Outcome]:
        """See `Engine`; in the given order."""
        assert self.pair is not None
        label = labeller(self.config, self.pair)
        for place, unit in work:
            yield attempt(label, place, unit)


def labeller(config: Config, pair: Pair) -> LabelUnit:
    """What makes a unit's records with this pair."""
    space = ActionSpace(*astuple(config.action_space))

    def label(unit: WorkUnit) -> list[RootRecord]:
        tokens = encode_chat(pair.tokenizer, unit.prompt.messages, config.generate.chat_template)
        check_positions(pair, len(tokens), config.generate.max_new_tokens, deepest(space))
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
