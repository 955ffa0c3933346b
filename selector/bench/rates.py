"""Figures of a decoding bench: tokens and seconds summed by arm and prompt, and ratios with intervals over prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from selector.bench.coin import DECODING, StepArm, StepRecord
from selector.bench.texts import TextArm
from selector.statistics import Floats, Interval, percentile_interval, prompt_sums, resample_counts

Places = Set[tuple[int, int]]  # of (prompt, setting)
OPPOSED = ("ratio_to_static", "ratio_to_rule")
PART_KEYS = ("arm", "verifier", "against", "rule", "steps", "tokens_a_step")
MODEL_PASSES = tuple(DECODING.index(name) for name in ("draft", "target"))


@dataclass
class Sums:
    """What an arm did by prompt, each `[prompts]`.

    `tokens` and `seconds` are as they happened; `expected` tokens are given the drawn trees; `steady` seconds take
    each step at the median of its arm's steps with the same tree, so that other work of the machine does not count.
    """

    tokens: Floats
    seconds: Floats
    expected: Floats
    steady: Floats


def step_sums(records: Sequence[StepRecord], arm: int, prompts: int) -> Sums:
    """Sums of one arm's steps."""
    mine = [record for record in records if record.arm == arm]
    place = np.array([record.prompt for record in mine], dtype=np.int64)
    seconds = np.array([sum(record.seconds) + record.charge for record in mine])
    tokens = np.array([record.tokens for record in mine], dtype=np.float64)
    expected = np.array([record.expected for record in mine])
    return Sums(
        *(prompt_sums(values, place, prompts) for values in (tokens, seconds, expected, _steady(mine, seconds)))
    )


def _steady(records: Sequence[StepRecord], seconds: Floats) -> Floats:
    trees = [record.expansion for record in records]
    steady = np.zeros(len(records))
    for tree in set(trees):
        same = np.array([other == tree for other in trees])
        steady[same] = np.median(seconds[same])
    return steady


def text_sums(arm: TextArm, prompts: int) -> Sums:
    """Sums of an arm that runs whole texts; tokens and seconds are those after each text's first token."""
    tokens, seconds = np.zeros(prompts), np.zeros(prompts)
    for (prompt, _), (count, spent) in arm.runs.items():
        tokens[prompt] += count
        seconds[prompt] += spent
    return Sums(tokens, seconds, tokens, seconds)


def ratio(own: Sums, other: Sums, counts: Floats, level: float, as_it_happened: bool = False) -> Interval:
    """Tokens a second of `own` over those of `other`, with its interval.

    Both see the same resampled prompts, `counts [resamples, prompts]`.
    Expected tokens in steady seconds, unless `as_it_happened`: tokens in seconds. None where one of them did nothing.
    """
    sides = [(arm.tokens, arm.seconds) if as_it_happened else (arm.expected, arm.steady) for arm in (own, other)]
    (a_tokens, a_seconds), (b_tokens, b_seconds) = sides
    if not a_seconds.sum() or not b_seconds.sum() or not b_tokens.sum():
        return Interval(None, None, None)
    value = (a_tokens.sum() / a_seconds.sum()) / (b_tokens.sum() / b_seconds.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = ((counts @ a_tokens) / (counts @ a_seconds)) / ((counts @ b_tokens) / (counts @ b_seconds))
    return percentile_interval(float(value), draws, level)


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
        """Ratios are by `ratio`; `*_low` and `*_high` are their ends."""
        counts = resample_counts(self.prompts, self.resamples, self.seed)
        sums = {arm.name: text_sums(arm, self.prompts) for arm in self.texts}
        sums |= {arm.name: step_sums(self.records, place, self.prompts) for place, arm in enumerate(self.arms)}
        plain, undrafted = sums[self.texts[0].name], sums[self.arms[0].name]
        rows: list[dict[str, Any]] = [
            self._row(arm.name, sums[arm.name], plain, undrafted, counts) | arm.to_dict() for arm in self.texts
        ]
        for place, arm in enumerate(self.arms):
            own = sums[arm.name]
            row = self._row(arm.name, own, plain, undrafted, counts) | {"verifier": arm.verifier.name}
            row |= self._steps(place)
            if arm.against is not None:
                other = sums[arm.against]
                row |= {"against": arm.against} | _named("ratio_to_static", ratio(own, other, counts, self.level))
                row |= _named("ratio_to_static_as_it_happened", ratio(own, other, counts, self.level, True))
            if arm.rule is not None:
                row |= {"rule": arm.rule} | _named("ratio_to_rule", ratio(own, sums[arm.rule], counts, self.level))
            rows.append(row)
        return rows

    def width(self) -> float | None:
        """Width of the widest interval of a selector over its static tree, else of an arm over no drafting; or None."""
        counts = resample_counts(self.prompts, 200, self.seed)
        sums = {arm.name: step_sums(self.headline, place, self.prompts) for place, arm in enumerate(self.arms)}
        pairs = [(arm.name, arm.against) for arm in self.arms if arm.against is not None]
        pairs = pairs or [(arm.name, self.arms[0].name) for arm in self.arms[1:]]
        found = [ratio(sums[own], sums[other], counts, self.level) for own, other in pairs]
        widths = [one.high - one.low for one in found if one.high is not None and one.low is not None]
        return max(widths) if len(widths) == len(pairs) and pairs else None

    def disorder(self) -> float:
        """Seconds of all steps as they happened over their steady seconds: 1 on an idle machine."""
        sums = [step_sums(self.records, place, self.prompts) for place in range(len(self.arms))]
        return float(sum(one.seconds.sum() for one in sums) / sum(one.steady.sum() for one in sums))

    def _row(self, name: str, own: Sums, plain: Sums, undrafted: Sums, counts: Floats) -> dict[str, Any]:
        return {
            "arm": name,
            "tokens": own.tokens.sum(),
            "seconds": own.seconds.sum(),
            "expected_tokens": own.expected.sum(),
            "steady_seconds": own.steady.sum(),
            "tokens_per_second": own.expected.sum() / own.steady.sum() if own.steady.sum() else None,
            **_named("ratio_to_plain", ratio(own, plain, counts, self.level)),
            **_named("ratio_to_no_drafting", ratio(own, undrafted, counts, self.level)),
        }

    def _steps(self, place: int) -> dict[str, Any]:
        mine = [record for record in self.records if record.arm == place]
        seconds = np.array([record.seconds for record in mine]).reshape(len(mine), len(DECODING))
        spent = dict(zip(DECODING, seconds.sum(0).tolist(), strict=True))
        passes = seconds[:, MODEL_PASSES].sum()
        return {
            "steps": len(mine),
            "tokens_a_step": float(np.mean([record.expected for record in mine])) if mine else None,
            "overhead_share": float(1 - passes / seconds.sum()) if mine else None,
            "sections": spent,
            "actions": {str(tree): count for tree, count in Counter(r.expansion for r in mine).most_common()},
        }


def _named(name: str, interval: Interval) -> dict[str, float | None]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def interval_of(row: dict[str, Any], name: str) -> Interval:
    """The interval that a row holds under a name."""
    return Interval(row[name], row[f"{name}_low"], row[f"{name}_high"])
