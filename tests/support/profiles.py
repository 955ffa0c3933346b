"""Pass times of imagined machines."""

from __future__ import annotations

from dataclasses import replace

from selector.latency import LatencyProfile

COSTLY_DRAFT = LatencyProfile(
    contexts=(1, 512), widths=(1, 8), target_seconds=((0.02, 0.03), (0.02, 0.03)),
    draft_seconds=((0.006, 0.007), (0.006, 0.007)), overhead_seconds=(0.0, 0.0), plain_seconds=(0.02, 0.02),
)  # fmt: skip


def make_profile() -> LatencyProfile:
    """A target pass costs 10 ms, a draft pass 2 ms, a plain token 10 ms; choosing costs 0.1 ms."""
    table = ((0.01, 0.01), (0.01, 0.01))
    draft = ((0.002, 0.002), (0.002, 0.002))
    return LatencyProfile((1, 512), (1, 64), table, draft, (0.0, 0.0), (0.01, 0.01), 1e-4, {"device": "toy"})


def make_disturbed_profile() -> LatencyProfile:
    """`make_profile` with a pass of the draft that other work held up."""
    return replace(make_profile(), draft_seconds=((0.5, 0.002), (0.002, 0.002)))


def make_flat_profile() -> LatencyProfile:
    """Every action takes the same time."""
    table, nothing = ((0.01, 0.01), (0.01, 0.01)), ((0.0, 0.0), (0.0, 0.0))
    return LatencyProfile((1, 512), (1, 64), table, nothing, (0.0, 0.0), (0.01, 0.01))
