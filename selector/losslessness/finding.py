"""Result of one losslessness check, and a table of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

OK, IDENTICAL, NEAR_TIE, CAUGHT = "ok", "identical", "near tie", "caught"
DIVERGENT, BLIND = "divergent", "blind"


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Attributes:
        verdict: `ok`; for greedy texts `identical` or `near tie` (they part where two tokens are closer than the
            noise of the target's own passes); `divergent`. For a control, a broken decoder that a check is run on:
            `caught`, or `blind` where the check did not see it.
        detail: the figures behind it.
    """

    check: str
    subject: str
    verdict: str
    detail: str

    @property
    def passed(self) -> bool:
        """Whether the decoder passed, or for a control the check."""
        return self.verdict not in (DIVERGENT, BLIND)


def control(name: str, findings: list[Finding]) -> Finding:
    """Result of running a check on a broken decoder, from what the check said."""
    seen = [finding for finding in findings if not finding.passed]
    detail = seen[0].detail if seen else "the check passes a broken decoder: its other verdicts mean nothing"
    return Finding("control", name, CAUGHT if seen else BLIND, detail)


def print_findings(findings: Sequence[Finding], console: Console | None = None) -> None:
    """One row a finding, and one sentence that sums up."""
    console = console or Console()
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("check", "of", "verdict", "figures"):
        table.add_column(name)
    for finding in findings:
        color = "green" if finding.passed else "red"
        verdict = f"[{color}]{finding.verdict}[/{color}]"
        table.add_row(finding.check, escape(finding.subject), verdict, escape(finding.detail))
    console.print(table)
    failed = sum(not finding.passed for finding in findings)
    blind = any(finding.verdict == BLIND for finding in findings)
    if blind:
        console.print("A check did not see a decoder that is broken on purpose, so it shows nothing.")
    elif failed:
        console.print(f"Decoding is not lossless here: {failed} of {len(findings)} checks failed.")
    else:
        console.print("Decoding is lossless here, as far as these checks see; each of them saw a broken decoder.")
