"""The result on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from selector.evaluation.report.prose import LABELS, number, percent, verdict, with_interval
from selector.statistics import Interval

COLUMNS = {
    "tokens_per_second": "tok/s",
    "ratio_to_plain": "× plain",
    "ratio_to_best_static": "× best static",
    "block_efficiency": "a step",
    "gap_recovered": "gap",
}
COLOURS = {"gain": "green", "loss": "red", "no difference shown": "yellow"}


def print_rows(rows: Sequence[dict[str, Any]], console: Console | None = None) -> None:
    """A table for each verifier from the rows of `evaluate` or of metrics.json."""
    console = console or Console()
    for verifier in dict.fromkeys(row["verifier"] for row in rows):
        mine = [row for row in rows if row["verifier"] == verifier]
        table = Table(
            title=f"{verifier}, {mine[0]['n_prompts']} test prompts",
            title_justify="left",
            box=SIMPLE,
            padding=(0, 0),
            pad_edge=False,
        )
        table.add_column("policy", no_wrap=True)
        for name in COLUMNS.values():
            table.add_column(name, justify="right", no_wrap=True)
        for policy in dict.fromkeys(row["policy"] for row in mine):
            figures = {
                row["metric"]: Interval(row["value"], row["low"], row["high"])
                for row in mine
                if row["policy"] == policy
            }
            style = COLOURS[verdict(figures["ratio_to_best_static"])] if policy.startswith("selector") else None
            table.add_row(
                LABELS.get(policy, policy), *(_text(metric, figures[metric]) for metric in COLUMNS), style=style
            )
        console.print(table)


def _text(metric: str, interval: Interval) -> str:
    """Ratios with their intervals, the rest without, so that a table fits 80 columns."""
    if metric == "gap_recovered":
        return percent(Interval(interval.value, None, None))
    if metric.startswith("ratio"):
        return with_interval(interval, 2)
    return number(interval.value, 1 if metric == "tokens_per_second" else 2)
