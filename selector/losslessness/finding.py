"""One line of the verdict on a pair."""

from __future__ import annotations

from dataclasses import dataclass

OK, IDENTICAL, NEAR_TIE, CAUGHT = "ok", "identical", "near tie", "caught"
DIVERGENT, BLIND = "divergent", "blind"


@dataclass(frozen=True)
class Finding:
    """What one check found.

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
        """Whether this speaks for the decoder."""
        return self.verdict not in (DIVERGENT, BLIND)


def control(name: str, findings: list[Finding]) -> Finding:
    """The verdict on a check from what it said of a broken decoder."""
    seen = [finding for finding in findings if not finding.passed]
    detail = seen[0].detail if seen else "the check passes a broken decoder: its other verdicts mean nothing"
    return Finding("control", name, CAUGHT if seen else BLIND, detail)
