"""Sentences of the result: one a verifier and one overall, from the rows of metrics.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from selector.statistics import Interval

FEW_PROMPTS = 10
LABELS = {
    "plain": "plain decoding",
    "no_drafting": "no drafting",
    "best_static": "best static",
    "best_static_per_setting": "static per setting",
    "best_chain": "best chain (K = 1)",
    "best_root_branching": "best with L1 = 0",
    "best_copy_rule": "best copy rule",
    "ridge": "ridge",
    "ridge_scalars": "ridge (scalars)",
    "boosting": "boosted trees",
    "boosting_scalars": "boosted trees (scalars)",
    "entropy_heuristic": "entropy rule",
    "selector": "selector",
    "selector_policy": "selector (policy)",
    "selector_regressor": "selector (regressor)",
    "selector_drafted": "selector, no copies",
    "oracle": "oracle",
    "oracle_in_sample": "oracle, same samples",
}


class Combination(NamedTuple):
    """A verifier with what is best used with it: its selector if that is surely faster, else its best static tree.

    Attributes:
        figures: intervals by (policy, metric), those of the verifier's rows.
    """

    verifier: str
    figures: Mapping[tuple[str, str], Interval]
    num_prompts: int

    @property
    def policy(self) -> str:
        """`selector` or `best_static`."""
        over_static = self.figures.get(("selector", "ratio_to_best_static"))
        return "selector" if over_static is not None and over_static.verdict == "gain" else "best_static"

    def figure(self, metric: str) -> Interval:
        """Of the policy that is best used."""
        return self.figures[self.policy, metric]

    @property
    def sentence(self) -> str:
        """What it gives over plain decoding, and its selector over its best static tree."""
        plain, over_static = self.figure("ratio_to_plain"), self.figures.get(("selector", "ratio_to_best_static"))
        if over_static is None:
            return f"{self.verifier}: {plain:.2f} times plain with its best static tree; it has no selector."
        if self.policy == "selector":
            text = f"{self.verifier}: {plain:.2f} times plain with its selector"
            return f"{text}, {over_static:.3f} over its best static tree."
        shown = "a loss" if over_static.verdict == "loss" else "no difference shown"
        return (
            f"{self.verifier}: {plain:.2f} times plain with its best static tree; "
            f"its selector has {over_static:.3f} of that, {shown}."
        )


def combinations(rows: Sequence[Mapping[str, Any]]) -> list[Combination]:
    """One a verifier, the fastest first."""
    figures: dict[str, dict[tuple[str, str], Interval]] = {}
    for row in rows:
        place = figures.setdefault(row["verifier"], {})
        place[row["policy"], row["metric"]] = Interval(row["value"], row["low"], row["high"])
    found = [Combination(verifier, own, rows[0]["n_prompts"]) for verifier, own in figures.items()]
    return sorted(found, key=lambda one: one.figure("tokens_per_second").value or 0.0, reverse=True)


def answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """What to use on the machine that `rows` are of, and what it gives."""
    best = combinations(rows)[0]
    plain, engine = best.figure("ratio_to_plain"), best.figures.get(("no_drafting", "ratio_to_plain"))
    name = f"{best.verifier} with its {'selector' if best.policy == 'selector' else 'best static tree'}"
    few = f" This rests on {best.num_prompts} test prompts." if best.num_prompts < FEW_PROMPTS else ""
    if plain.verdict != "gain":
        return f"use plain decoding: nothing is surely faster; {name} runs at {plain:.2f} times plain.{few}"
    parts = [f"use {name}: {plain:.2f} times plain"]
    if engine is not None:
        parts[0] += f", of which {engine.value:.2f} is the engine"
    if best.policy == "selector":
        parts.append(f"{best.figure('ratio_to_best_verifier_static'):.2f} over the best static tree")
    elif any(policy == "selector" for policy, _ in best.figures):
        parts.append("its selector is not surely faster")
    return "; ".join(parts) + f".{few}"
