"""The verdict on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from selector.losslessness.finding import Finding


def print_findings(findings: Sequence[Finding], console: Console | None = None) -> None:
    """One row a finding, and one sentence that sums up."""
    console = console or Console()
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("check", "of", "verdict", "figures"):
        table.add_column(name)
    for finding in findings:
        colour = "green" if finding.passed else "red"
        verdict = f"[{colour}]{finding.verdict}[/{colour}]"
        table.add_row(finding.check, escape(finding.subject), verdict, escape(finding.detail))
    console.print(table)
    failed = sum(not finding.passed for finding in findings)
    blind = any(finding.verdict == "blind" for finding in findings)
    if blind:
        console.print("A check did not see a decoder that is broken on purpose, so it shows nothing.")
    elif failed:
        console.print(f"Decoding is not lossless here: {failed} of {len(findings)} checks failed.")
    else:
        console.print("Decoding is lossless here, as far as these checks see; each of them saw a broken decoder.")
