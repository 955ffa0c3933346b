"""When does a selector pay? One data set and its selectors under the pass times of several machines.

Acceptance is the pair's own everywhere, only the times are a machine's. Selectors are not trained again: their
regressors predict tokens, which each machine's times price anew; their policy heads know one machine alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from selector.config import EvaluateConfig
from selector.dataset.dataset import RootDataset
from selector.evaluation.metrics import PolicyScores
from selector.evaluation.selectors import selector_outcomes
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.offline import baselines
from selector.offline.labelled_roots import LabelledRoots, build_roots
from selector.statistics import Floats, Interval, resample_counts
from selector.trees.expansion import Expansion

COSTS = tuple(float(cost) for cost in np.geomspace(0.02, 1, 18))
ONE_TOKEN = Expansion(1, 0, 1)
WIDE = 8


@dataclass(frozen=True)
class MachineRow:
    """One verifier on one machine, at the test roots.

    Attributes:
        machine: its name in the map.
        kind: of its pass times, see `Provenance`.
        best_static: the best static tree there, on the training prompts.
        draft_cost: time of a draft pass over that of a target pass, both of one row, `t_q / t_p`.
        width_cost: time of a target pass of eight rows over that of one.
        acceptance: share of single drafted tokens that the verifier accepts; None where no tree drafts one.
        engine: the decoder without drafting over plain decoding.
        static_over_plain, static_over_undrafted: throughput of the best static tree over these two.
        selector_over_static, rule_over_static, oracle_over_static: paired; without a selector the first is None,
            without copies the second, which is the best copy rule of the training prompts there.
        gap_recovered: share of the oracle's gain that the selector has.
        n_prompts: that the intervals rest on.
    """

    machine: str
    kind: Literal["measured", "fitted"]
    verifier: str
    best_static: Expansion
    draft_cost: float
    width_cost: float
    acceptance: float | None
    engine: Interval
    static_over_plain: Interval
    static_over_undrafted: Interval
    selector_over_static: Interval | None
    rule_over_static: Interval | None
    oracle_over_static: Interval
    gap_recovered: Interval | None
    n_prompts: int


@dataclass(frozen=True)
class MachineMap:
    """The rows of all machines and verifiers, the first machine being that of the report.

    Attributes:
        provenance: of each machine, by its name.
        verifier: that of the sweep, the fastest on the first machine.
        sweep: this verifier on the first machine, its draft being faster or slower than measured; empty where drafting
            takes no time.
    """

    rows: tuple[MachineRow, ...]
    provenance: Mapping[str, Mapping[str, str]]
    verifier: str
    sweep: tuple[MachineRow, ...]

    def of(self, verifier: str) -> list[MachineRow]:
        """One verifier on all machines."""
        return [row for row in self.rows if row.verifier == verifier]

    def as_json(self) -> dict[str, Any]:
        """The content of map.json."""
        rows = {name: [_as_json(row) for row in getattr(self, name)] for name in ("rows", "sweep")}
        return {"verifier": self.verifier, "machines": self.provenance, **rows}


def machine_map(
    checkpoints: Sequence[SelectorCheckpoint],
    train: RootDataset,
    test: RootDataset,
    machines: Mapping[str, LatencyProfile],
    verifier: str,
    config: EvaluateConfig,
) -> MachineMap:
    """All verifiers on all `machines`, and the sweep of `verifier` on the first."""
    counts = resample_counts(len(set(test.prompt_ids)), config.bootstrap, config.seed)
    verifiers = [name for name in test.manifest.verifiers if name in train.manifest.verifiers]

    def row(machine: str, profile: LatencyProfile, verifier: str) -> MachineRow:
        own = [checkpoint for checkpoint in checkpoints if checkpoint.config.verifier == verifier]
        return machine_row(machine, profile, verifier, own, train, test, counts, config.level)

    name, first = next(iter(machines.items()))
    context = test.context_length.double()
    scaled = [with_draft_cost(first, cost, context) for cost in COSTS] if draft_cost(first, context) else []
    return MachineMap(
        tuple(row(machine, profile, verifier) for verifier in verifiers for machine, profile in machines.items()),
        {machine: vars(profile.provenance) | {"hardware": profile.hardware} for machine, profile in machines.items()},
        verifier,
        tuple(row(name, profile, verifier) for profile in scaled),
    )


def machine_row(
    machine: str,
    profile: LatencyProfile,
    verifier: str,
    checkpoints: Sequence[SelectorCheckpoint],
    train: RootDataset,
    test: RootDataset,
    counts: Floats,
    level: float,
) -> MachineRow:
    """One verifier under one profile; `checkpoints` are its selectors, and `counts` the resamples of test prompts."""
    train_roots, roots = (build_roots(data, verifier, profile) for data in (train, test))
    best = baselines.best_action(train_roots)
    outcomes = {
        "plain": baselines.plain_decoding(roots),
        "undrafted": baselines.no_drafting(roots),
        "best_static": baselines.score_policy(roots, np.full(len(roots), best), roots.times),
        "oracle": baselines.oracle(roots),
    }
    if baselines.copies_anything(train_roots):
        rule = baselines.best_copy_rule(train_roots).actions(roots)
        outcomes["rule"] = baselines.score_policy(roots, rule, roots.times)
    if checkpoints:
        outcomes["selector"] = selector_outcomes(checkpoints, test, roots)[0]["selector_regressor"]
    scores, context = PolicyScores(verifier, roots, outcomes, counts, level), test.context_length.double()
    wide, narrow = (profile.target_time(context, width) for width in (WIDE, 1))
    return MachineRow(
        machine=machine,
        kind=profile.provenance.kind,
        verifier=verifier,
        best_static=roots.space.drafted[best],
        draft_cost=draft_cost(profile, context),
        width_cost=float((wide / narrow).mean()),
        acceptance=_acceptance(roots),
        engine=scores.ratio("undrafted", "plain"),
        static_over_plain=scores.ratio("best_static", "plain"),
        static_over_undrafted=scores.ratio("best_static", "undrafted"),
        selector_over_static=scores.ratio("selector", "best_static") if checkpoints else None,
        rule_over_static=scores.ratio("rule", "best_static") if "rule" in outcomes else None,
        oracle_over_static=scores.ratio("oracle", "best_static"),
        gap_recovered=scores.gap_recovered("selector") if checkpoints else None,
        n_prompts=len(roots.prompt_names),
    )


def draft_cost(profile: LatencyProfile, context: Tensor) -> float:
    """`t_q / t_p` of passes of one row, the mean over `context [roots]`."""
    return float((profile.draft_time(context, 1) / profile.target_time(context, 1)).mean())


def with_draft_cost(profile: LatencyProfile, cost: float, context: Tensor) -> LatencyProfile:
    """The same machine with a draft that takes `cost` of a target pass; draft passes of all widths are scaled alike."""
    factor = cost / draft_cost(profile, context)
    return replace(profile, draft_seconds=tuple(tuple(factor * time for time in row) for row in profile.draft_seconds))


def _acceptance(roots: LabelledRoots) -> float | None:
    """A step of one drafted token yields one token, and the drafted one where it is accepted."""
    if ONE_TOKEN not in roots.space.expansions:
        return None
    return float(roots.efficiency[:, roots.space.index(ONE_TOKEN)].mean() - 1)


def _as_json(row: MachineRow) -> dict[str, Any]:
    return {name: value._asdict() if isinstance(value, Interval) else value for name, value in vars(row).items()}
