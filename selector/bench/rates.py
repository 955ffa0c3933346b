"""Figures of a decoding bench: tokens and seconds summed by arm and prompt, and ratios with intervals over prompts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from selector.bench.adjusted import AdjustedMeans
from selector.bench.coin import DECODING, StepArm, StepRecord
from selector.bench.texts import TextArm
from selector.statistics import Floats, Interval, percentile_interval, prompt_sums, resample_counts

Places = Set[tuple[int, int]]  # of (prompt, setting)
OPPOSED = ("ratio_to_static", "ratio_to_rule")
PART_KEYS = ("arm", "verifier", "against", "rule", "steps", "tokens_a_step")
MODEL_PASSES = tuple(DECODING.index(name) for name in ("draft", "target"))


@dataclass
class Sums:
    """Tokens and seconds of an arm as they happened, by prompt, each `[prompts]`."""

    tokens: Floats
    seconds: Floats

    def rates(self, counts: Floats) -> Floats:
        """Tokens a second in each of `counts [resamples, prompts]`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rates: Floats = (counts @ self.tokens) / (counts @ self.seconds)
        return rates


def step_sums(records: Sequence[StepRecord], arm: int, prompts: int) -> Sums:
    """Sums of one arm's steps."""
    mine = [record for record in records if record.arm == arm]
    place = np.array([record.prompt for record in mine], dtype=np.int64)
    tokens = np.array([record.tokens for record in mine], dtype=np.float64)
    return Sums(*(prompt_sums(values, place, prompts) for values in (tokens, _seconds(mine))))


def steady_seconds(records: Sequence[StepRecord]) -> Floats:
    """`[steps]`: each at the median of its arm's steps with the same tree: other work of the machine counts little."""
    seconds, places = _seconds(records), defaultdict(list)
    for place, record in enumerate(records):
        places[record.arm, record.expansion].append(place)
    steady = np.zeros(len(records))
    for same in places.values():
        steady[same] = np.median(seconds[same])
    return steady


def _seconds(records: Sequence[StepRecord]) -> Floats:
    return np.array([sum(record.seconds) + record.charge for record in records], dtype=np.float64)


def text_sums(arm: TextArm, prompts: int) -> Sums:
    """Sums of an arm that runs whole texts; tokens and seconds are those after each text's first token."""
    tokens, seconds = np.zeros(prompts), np.zeros(prompts)
    for (prompt, _), (count, spent) in arm.runs.items():
        tokens[prompt] += count
        seconds[prompt] += spent
    return Sums(tokens, seconds)


def ratio(own: Floats, other: Floats, level: float) -> Interval:
    """One rate over another, `[1 + resamples]` each, all prompts first; None where one is undefined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = own / other
    return percentile_interval(float(draws[0]), draws[1:], level)


@dataclass
class Measured:
    """All that a bench has seen: records of steps by arm, and the runs of whole texts; plain `generate` is first."""

    arms: Sequence[StepArm]
    records: list[StepRecord]
    texts: Sequence[TextArm]
    prompts: int
    resamples: int = 2000
    level: float = 0.95
    seed: int = 0

    def rows(self) -> list[dict[str, Any]]:
        """One row an arm, and one more of its steps in texts that loop, which are left out of the first.

        Where all texts loop there is one row. The arms of whole texts come first.
        """
        apart = [record for record in self.records if record.looping]
        if not 0 < len(apart) < len(self.records):
            return self._rows()
        looping = [row | {"looping": True} for row in replace(self, records=apart)._rows() if "steps" in row]
        return replace(self, records=self.headline)._rows() + looping

    @property
    def headline(self) -> list[StepRecord]:
        """Records of texts that do not loop, or all where all loop."""
        return [record for record in self.records if not record.looping] or self.records

    def parts(self, parts: Mapping[str, Places]) -> list[dict[str, Any]]:
        """Rows of the arms that have opponents, without texts that loop, in each named part of the places."""
        found = []
        for name, places in parts.items():
            records = [record for record in self.headline if (record.prompt, record.setting) in places]
            for row in replace(self, records=records)._rows():
                kept = {key: value for key, value in row.items() if key in PART_KEYS or key.startswith(OPPOSED)}
                found += [{"part": name} | kept] if "against" in row or "rule" in row else []
        return found

    def _rows(self) -> list[dict[str, Any]]:
        """Ratios are of `rates`, and where they say so of what happened; `*_low` and `*_high` are their ends."""
        counts = self._counts(self.resamples)
        sums = {arm.name: text_sums(arm, self.prompts) for arm in self.texts}
        sums |= {arm.name: step_sums(self.records, place, self.prompts) for place, arm in enumerate(self.arms)}
        happened = {name: one.rates(counts) for name, one in sums.items()}
        rates = happened | self.rates(counts)
        rows: list[dict[str, Any]] = [self._row(arm.name, sums, rates) | arm.to_dict() for arm in self.texts]
        for place, arm in enumerate(self.arms):
            row = self._row(arm.name, sums, rates) | {"verifier": arm.verifier.name} | self._steps(place)
            if arm.against is not None:
                row |= {"against": arm.against} | self._ratio("static", arm.name, arm.against, rates)
                row |= self._ratio("static_as_it_happened", arm.name, arm.against, happened)
            if arm.rule is not None:
                row |= {"rule": arm.rule} | self._ratio("rule", arm.name, arm.rule, rates)
            rows.append(row)
        return rows

    def rates(self, counts: Floats) -> dict[str, Floats]:
        """Expected tokens in steady seconds of the arms that took turns, adjusted, in each of `counts`."""
        if not self.records:
            return {arm.name: np.full(len(counts), np.nan) for arm in self.arms}
        arm, prompt = (np.array([getattr(one, name) for one in self.records]) for name in ("arm", "prompt"))
        expected, steady = np.array([one.expected for one in self.records]), steady_seconds(self.records)
        means = AdjustedMeans(arm, prompt, np.array([one.known for one in self.records]), len(self.arms), counts)
        found = {}
        for place, own in enumerate(self.arms):
            tokens, seconds = means.of(place, expected, steady)
            with np.errstate(divide="ignore", invalid="ignore"):
                found[own.name] = tokens / seconds
        return found

    def width(self) -> float | None:
        """Width of the widest interval of a selector over its static tree, else of an arm over no drafting; or None."""
        rates = replace(self, records=self.headline).rates(self._counts(200))
        pairs = [(arm.name, arm.against) for arm in self.arms if arm.against is not None]
        pairs = pairs or [(arm.name, self.arms[0].name) for arm in self.arms[1:]]
        found = [ratio(rates[own], rates[other], self.level) for own, other in pairs]
        widths = [one.high - one.low for one in found if one.high is not None and one.low is not None]
        return max(widths) if len(widths) == len(pairs) and pairs else None

    def disorder(self) -> float:
        """Seconds of all steps as they happened over their steady seconds: 1 on an idle machine."""
        return float(_seconds(self.records).sum() / steady_seconds(self.records).sum())

    def _counts(self, resamples: int) -> Floats:
        """All prompts once, then the resamples: `[1 + resamples, prompts]`."""
        drawn = resample_counts(self.prompts, resamples, self.seed)
        return np.concatenate([np.ones((1, self.prompts)), drawn])

    def _row(self, name: str, sums: dict[str, Sums], rates: dict[str, Floats]) -> dict[str, Any]:
        rate = float(rates[name][0])
        return {
            "arm": name,
            "tokens": sums[name].tokens.sum(),
            "seconds": sums[name].seconds.sum(),
            "tokens_per_second": rate if np.isfinite(rate) else None,
            **self._ratio("plain", name, self.texts[0].name, rates),
            **self._ratio("no_drafting", name, self.arms[0].name, rates),
        }

    def _ratio(self, title: str, own: str, other: str, rates: dict[str, Floats]) -> dict[str, float | None]:
        found, name = ratio(rates[own], rates[other], self.level), f"ratio_to_{title}"
        return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}

    def _steps(self, place: int) -> dict[str, Any]:
        mine = [record for record in self.records if record.arm == place]
        steady = steady_seconds(mine)
        seconds = np.array([record.seconds for record in mine]).reshape(len(mine), len(DECODING))
        spent = dict(zip(DECODING, seconds.sum(0).tolist(), strict=True))
        passes = seconds[:, MODEL_PASSES].sum()
        return {
            "steps": len(mine),
            "expected_tokens": float(sum(record.expected for record in mine)),
            "steady_seconds": float(steady.sum()),
            "tokens_a_step": float(np.mean([record.expected for record in mine])) if mine else None,
            "overhead_share": float(1 - passes / seconds.sum()) if mine else None,
            "sections": spent,
            "actions": {str(tree): count for tree, count in Counter(r.expansion for r in mine).most_common()},
        }


def interval_of(row: dict[str, Any], name: str) -> Interval:
    """The interval that a row holds under a name."""
    return Interval(row[name], row[f"{name}_low"], row[f"{name}_high"])
