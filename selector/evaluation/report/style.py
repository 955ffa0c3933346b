"""Matplotlib figures as inline SVG that follows the page's text colour, so that light and dark both work."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure

INK = "#14171f"
MUTED = "#8b93a1"
COLOURS = {
    "plain": MUTED,
    "static": "#5b8def",
    "reference": "#d39b3a",
    "selector": "#8b5cf6",
    "oracle": "#22a37c",
}
WIDTH = 4.4
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
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
    "svg.fonttype": "none",  # glyphs as paths took two thirds of the report
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
    for prefix in ("plain", "best", "selector", "oracle"):
        if policy.startswith(prefix):
            return COLOURS[prefix.replace("best", "static")]
    return COLOURS["reference"]


def to_svg(figure: Figure, name: str, description: str) -> Markup:
    """Inline SVG: scales with its box, text takes `currentColor`, ids are prefixed with `name` to be unique."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    drawing = buffer.getvalue()
    head, rest = drawing[drawing.index("<svg") :].split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    rest = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", rest, flags=re.DOTALL)
    rest = re.sub(r"\s+", " ", rest)
    rest = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), rest)  # hundredths of a point will do
    text = f"{head}>{rest}"
    for before in ('id="', 'href="#', "url(#"):
        text = text.replace(before, f"{before}{name}-")
    label = f'<svg role="img" aria-label="{escape(description)}" '
    return Markup(text.replace(INK, "currentColor").replace("<svg ", label, 1))


def save_png(figure: Figure, path: Path) -> None:
    """The picture on white, for pages that cannot hold SVG."""
    figure.savefig(path, dpi=160, facecolor="white")
