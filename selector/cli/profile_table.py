"""The table of a latency profile on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from selector.latency import LatencyProfile


def print_profile(measured: LatencyProfile) -> None:
    """Where the times come from; milliseconds of passes, and around a step, by context and width; of one choice."""
    table = Table(title="Milliseconds of a pass", title_justify="left")
    for heading in ("model", "context", *(f"{width} rows" for width in measured.widths)):
        table.add_column(heading, no_wrap=True)
    for model, rows in (("target", measured.target_seconds), ("draft", measured.draft_seconds)):
        for context, seconds in zip(measured.contexts, rows, strict=True):
            table.add_row(model, str(context), *(f"{1000 * second:.1f}" for second in seconds))
    table.add_row("around a step", "", *(f"{1000 * second:.1f}" for second in measured.overhead_seconds))
    for context, token in zip(measured.contexts, measured.plain_seconds, strict=True):
        table.add_row("plain generate", str(context), f"{1000 * token:.1f}")
    table.add_row("one choice", "", f"{1e6 * measured.selector_seconds:.0f} µs")
    console, known = Console(), measured.provenance
    console.print(f"{known.target} and {known.draft} on {measured.hardware}, {known.engine}.", markup=False)
    console.print(table)
    if known.note:
        console.print(known.note, markup=False)
