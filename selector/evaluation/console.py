"""Tables and the answer on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from selector.evaluation.report.prose import LABELS, answer
from selector.statistics import Interval, as_text

COLUMNS = {
    "tokens_per_second": ("tok/s", ".1f"),
    "ratio_to_plain": ("× plain", ".2f"),
    "ratio_to_best_static": ("× best static", ".2f"),
    "block_efficiency": ("a step", ".2f"),
    "gap_recovered": ("gap", ".0%"),
}
COLOURS = {"gain": "green", "loss": "red", "no difference shown": "yellow"}


def print_rows(rows: Sequence[dict[str, Any]], console: Console | None = None) -> None:
    """A table for each verifier from the rows of `evaluate` or of metrics.json, and what they say to use."""
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
        for name, _ in COLUMNS.values():
            table.add_column(name, justify="right", no_wrap=True)
        for policy in dict.fromkeys(row["policy"] for row in mine):
            own = [row for row in mine if row["policy"] == policy]
            figures = {row["metric"]: Interval(row["value"], row["low"], row["high"]) for row in own}
            style = COLOURS[figures["ratio_to_best_static"].verdict] if policy.startswith("selector") else None
            cells = (_text(metric, figures[metric], spec) for metric, (_, spec) in COLUMNS.items())
            table.add_row(LABELS.get(policy, policy), *cells, style=style)
        console.print(table)
    console.print(f"Under these pass times: {answer(rows)}", markup=False)


def _text(metric: str, figure: Interval, spec: str) -> str:
    """Ratios with their intervals, the rest without, so that a table fits 80 columns."""
    return format(figure, spec) if metric.startswith("ratio") else as_text(figure.value, spec)
