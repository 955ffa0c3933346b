"""`ddte bench verification`: verifiers by vocabulary and size of the tree, in multiples of the floor, beside goals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from selector.artifacts import check_file, write_json
from selector.bench.verification_timing import FLOOR, SOFTMAX, bench_step, random_step
from selector.errors import UserError
from selector.trees.verifiers import VERIFIERS, get_verifier

GOALS = dict.fromkeys(("nss", "naive", "specinfer", "bv", "traversal"), 3.0)
GOALS |= dict.fromkeys(("spectr", "ranked", "rbv", "gbv"), 6.0)


def bench_verification(
    nodes: Sequence[int],
    vocabularies: Sequence[int],
    verifiers: Sequence[str] | None = None,
    seconds: float = 8.0,
    json: Path | None = None,
) -> None:
    """Measure each size, printing a table for each vocabulary as it is done, then which verifiers miss their goals."""
    names = verifiers or list(VERIFIERS)
    for name in names:
        get_verifier(name)
    for field, sizes, least in (("nodes", nodes, 3), ("vocabularies", vocabularies, 100)):
        if not sizes or min(sizes) < least:
            raise UserError(f"{field} is {list(sizes)}: give sizes of {least} or more.")
    if not seconds > 0:
        raise UserError(f"seconds is {seconds}: give a time above 0.")
    if json:
        check_file("json", json)
    console = Console()
    threads = torch.get_num_threads()
    console.print(f"Multiples of the floor (one read of the laws, float32), 95% intervals; threads: {threads}.")
    rows: list[dict[str, Any]] = []
    for vocab in vocabularies:
        for size in nodes:
            rows += measure(size, vocab, names, seconds)
        console.print(bench_table([row for row in rows if row["vocab"] == vocab]))
    console.print(verdict(rows))
    if json:
        write_json(json, rows)


def measure(nodes: int, vocab: int, verifiers: Sequence[str], seconds: float) -> list[dict[str, Any]]:
    """One row an arm: medians of its time and of its multiple of the floor, with the latter's interval."""
    step = random_step(nodes, vocab, seed=1)
    choices = sum(len(entries) > 1 for entries in step.tree.topology.children)
    size = {"nodes": nodes, "vocab": vocab, "branching_nodes": choices, "threads": torch.get_num_threads()}
    found = bench_step(step, verifiers, seconds)
    return [{"arm": arm, **size, "goal": GOALS.get(arm), **figure._asdict()} for arm, figure in found.items()]


def bench_table(rows: Sequence[dict[str, Any]]) -> Table:
    """A column for each size of the tree at one vocabulary; what is above its goal is red.

    The first line counts the nodes with two drafts or more, the only ones where most solvers have work to do.
    """
    title = f"{rows[0]['vocab']:,} tokens"
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("arm", no_wrap=True)
    table.add_column("goal", justify="right")
    sizes = list(dict.fromkeys(row["nodes"] for row in rows))
    for nodes in sizes:
        table.add_column(f"{nodes} nodes", justify="right", no_wrap=True)
    choices = [str(row["branching_nodes"]) for row in rows if row["arm"] == FLOOR]
    table.add_row("2+ drafts", "", *choices)
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == arm]
        goal = f"{mine[0]['goal']:g}" if mine[0]["goal"] else "-"
        table.add_row(arm, "" if arm in (FLOOR, SOFTMAX) else goal, *map(_cell, mine))
    return table


def _cell(row: dict[str, Any]) -> Text:
    if row["arm"] == FLOOR:
        return Text(f"{1000 * row['seconds']:.2f} ms")
    multiple, low, high = (f"{row[name]:.{1 if row[name] < 9.95 else 0}f}" for name in ("multiple", "low", "high"))
    text = f"{multiple} [{low}, {high}]"
    return Text(text, "red" if misses(row) else "")


def misses(row: dict[str, Any]) -> bool:
    """Whether a verifier is above its goal."""
    return row["goal"] is not None and row["multiple"] > row["goal"]


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Plain words: which verifiers miss their goals, at how many sizes, and how badly at most."""
    missed = [row for row in rows if misses(row)]
    parts = []
    for arm in dict.fromkeys(row["arm"] for row in missed):
        own = [row for row in missed if row["arm"] == arm]
        worst = max(own, key=lambda row: float(row["multiple"]))
        place = f"{worst['multiple']:.1f} at {worst['nodes']} nodes of {worst['vocab']:,} tokens"
        sizes = sum(row["arm"] == arm for row in rows)
        parts.append(f"{arm} (goal {worst['goal']:g}) at {len(own)} of {sizes} sizes, at worst {place}")
    if not parts:
        return "Every verifier with a goal meets it at every size."
    return "Above their goals: " + "; ".join(parts) + "."
