"""Tables and the answer on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from selector.artifacts.loading import read_json
from selector.evaluation.report.prose import LABELS, answer
from selector.statistics import Interval, as_text
from selector.trees.expansion import Expansion

COLUMNS = {
    "tokens_per_second": ("tok/s", ".1f"),
    "ratio_to_plain": ("× plain", ".2f"),
    "ratio_to_best_static": ("× best static", ".2f"),
    "block_efficiency": ("a step", ".2f"),
    "gap_recovered": ("gap", ".0%"),
}
MAPPED = ("static_over_plain", "selector_over_static", "rule_over_static", "oracle_over_static", "gap_recovered")
UNDEFINED = dict.fromkeys(Interval._fields)
MAP_NOTE = (
    "Selector, copy rule and oracle are over the best static tree; draft: the time of its pass over that of a target "
    "pass. Drafts are accepted as this pair's are on every machine: only the times are the machine's, and the "
    "selector's regressor, which is not trained again, is priced by them."
)
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


def print_map(path: Path, console: Console | None = None) -> None:
    """From map.json, one verifier on each machine; nothing where there is one machine alone."""
    content = read_json(path, "make it with `ddte evaluate`")
    console, verifier = console or Console(), content["verifier"]
    rows = [row for row in content["rows"] if row["verifier"] == verifier]
    if len(rows) < 2:
        return
    table = Table(title=f"{verifier} on each machine", title_justify="left", box=SIMPLE, padding=(0, 0), pad_edge=False)
    table.add_column("machine", overflow="fold")
    for name in ("static", "× plain", "selector", "rule", "oracle", "gap", "draft"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        plain, selector, rule, oracle, gap = (Interval(**row[name] or UNDEFINED) for name in MAPPED)
        texts = (
            as_text(plain.value, ".2f"),
            f"{selector:.3f}",
            as_text(rule.value, ".3f"),
            as_text(oracle.value, ".3f"),
            as_text(gap.value, ".0%"),
        )
        tree, cost = str(Expansion(*row["best_static"])), f"{row['draft_cost']:.2f}"
        style = COLOURS[selector.verdict] if selector.value is not None else None
        table.add_row(row["machine"], tree, *texts, cost, style=style)
    console.print(table)
    console.print(MAP_NOTE, markup=False)


def _text(metric: str, figure: Interval, spec: str) -> str:
    """Ratios with their intervals, the rest without, so that a table fits 80 columns."""
    return format(figure, spec) if metric.startswith("ratio") else as_text(figure.value, spec)
