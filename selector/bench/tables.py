"""What a decoding bench says: the answer in a sentence, the table of its arms, and selectors by task and setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from selector.bench.rates import Measured, interval_of
from selector.bench.step_arms import NO_DRAFTING
from selector.bench.texts import PLAIN
from selector.statistics import as_text

DISORDER = 1.05  # above it a sentence says that other work took the machine's time
NAME = 10  # columns of a terminal that an arm's name has at least
OPPONENTS = {"ratio_to_static": "against", "ratio_to_rule": "rule"}


def print_results(measured: Measured, rows: Sequence[dict[str, Any]], console: Console) -> None:
    """The answer first, then the table, the arms against their opponents, and the machine's disorder."""
    headline = headlines(rows)
    console.print(verdict(headline))
    console.print(bench_table([row for row in rows if "part" not in row]))
    for row in headline:
        for name, opponent in OPPONENTS.items():
            if row.get(name) is not None:
                console.print(f"{row['arm']} runs at {interval_of(row, name):.3f} times {row[opponent]}.")
    if parts := [row for row in rows if "part" in row]:
        console.print(part_table(parts))
    if (disorder := measured.disorder()) > DISORDER:
        console.print(f"Other work was in the way: steps took {disorder:.2f} times what they take in a steady state.")


def headlines(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows over all prompts and settings, without texts that loop."""
    return [row for row in rows if not row.get("looping") and "part" not in row]


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """The answer in a sentence: the fastest arm, and how much of its gain is the engine's."""
    others = [row for row in rows if row["arm"] != PLAIN and row["ratio_to_plain"] is not None]
    if not others:
        return "No arm beside plain decoding finished."
    best = max(others, key=lambda row: float(row["ratio_to_plain"]))
    ratio = interval_of(best, "ratio_to_plain")
    times = f"{ratio:.2f} times plain decoding"
    if best["ratio_to_plain"] <= 1:
        return f"Speculation is slower than plain decoding here: the best arm, {best['arm']}, runs at {times}."
    if ratio.verdict != "gain":
        return f"No arm is surely faster than plain decoding here: the best, {best['arm']}, runs at {times}."
    engine = next((row["ratio_to_plain"] for row in rows if row["arm"] == NO_DRAFTING), None)
    split = f", of which {engine:.2f} is the engine's without drafting" if engine is not None else ""
    return f"The fastest arm is {best['arm']}: {times}{split}."


def bench_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Throughput with intervals, tokens a step, and the time outside the models."""
    table = Table(box=SIMPLE, padding=(0, 0), pad_edge=False)
    table.add_column("arm", min_width=NAME)  # names wrap before figures are cut
    for heading in ("steps", "tok/s", "× plain", "× no drafting", "a step", "outside"):
        table.add_column(heading, no_wrap=True, justify="right")
    for row in rows:
        ratios = (f"{interval_of(row, name):.2f}" for name in ("ratio_to_plain", "ratio_to_no_drafting"))
        name = row["arm"] + ", texts that loop" * row.get("looping", False)
        table.add_row(
            name, str(row.get("steps", "")), as_text(row["tokens_per_second"], ".1f"), *ratios,
            as_text(row.get("tokens_a_step"), ".2f"), as_text(row.get("overhead_share"), ".0%"),
        )  # fmt: skip
    return table


def part_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Arms over their opponents by task and setting."""
    table = Table("part", "arm", box=SIMPLE, padding=(0, 0), pad_edge=False)
    for heading in ("steps", "× static", "× rule"):
        table.add_column(heading, no_wrap=True, justify="right")
    for row in rows:
        ratios = (f"{interval_of(row, name):.2f}" if row.get(name) is not None else "–" for name in OPPONENTS)
        table.add_row(row["part"], row["arm"], str(row["steps"]), *ratios)
    return table


def exit_code(rows: Sequence[dict[str, Any]], required: float | None, console: Console) -> int:
    """1 when nothing could be compared with plain `generate`, or the best is below `required` times it; else 0."""
    ratios = [row["ratio_to_plain"] for row in rows if row["ratio_to_plain"] is not None]
    if not ratios:
        console.print("No arm could be compared with plain decoding.")
        return 1
    if required is not None and max(ratios) < required:
        console.print(f"The best arm is {max(ratios):.2f} times plain; {required} was required.")
        return 1
    return 0
