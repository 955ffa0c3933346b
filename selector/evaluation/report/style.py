"""Matplotlib figures as inline SVG that follows the page's text colour, so that light and dark both work."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

INK = "#14171f"
MUTED = "#8b93a1"
COLOURS = {
    "plain": MUTED,
    "static": "#5b8def",
    "reference": "#d39b3a",
    "selector": "#8b5cf6",
    "oracle": "#22a37c",
    "loss": "#dc5048",
}
WIDTH = 4.4
STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.fonttype": "path",
    "svg.hashsalt": "ddte",
}


@contextmanager
def styled() -> Iterator[None]:
    """The report's style, without touching the caller's."""
    with matplotlib.rc_context(STYLE):
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """A figure without pyplot and its global state; sizes in inches, made to be read at a phone's width."""
    return Figure(figsize=(width, height), layout="constrained")


def colour(policy: str) -> str:
    """One colour for each kind of policy."""
    if policy in ("plain",):
        return COLOURS["plain"]
    for kind, prefix in (("static", "best_"), ("selector", "selector_"), ("oracle", "oracle")):
        if policy.startswith(prefix):
            return COLOURS[kind]
    return COLOURS["reference"]


def to_svg(figure: Figure, name: str, description: str) -> str:
    """Inline SVG: scales with its box, text takes `currentColor`, ids are prefixed with `name` to be unique."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    drawing = buffer.getvalue()
    head, rest = drawing[drawing.index("<svg") :].split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    rest = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", rest, flags=re.DOTALL)
    text = f"{head}>{rest}"
    for before in ('id="', 'href="#', "url(#"):
        text = text.replace(before, f"{before}{name}-")
    label = description.replace('"', "'").replace("&", "and").replace("<", "below")
    return text.replace(INK, "currentColor").replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def save_png(figure: Figure, path: Path) -> None:
    """The picture on white, for pages that cannot hold SVG."""
    figure.savefig(path, dpi=160, facecolor="white")


def errors(value: float, low: float | None, high: float | None) -> Any:
    """Distances to an interval's ends as `Axes.errorbar` wants them."""
    return [[0.0 if low is None else max(value - low, 0.0)], [0.0 if high is None else max(high - value, 0.0)]]
