"""Pictures of what is chosen, and of what was predicted."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from selector.evaluation.report.style import COLOURS, INK, MUTED, WIDTH, new_figure
from selector.evaluation.results import VerifierResult
from selector.statistics import Floats
from selector.trees.expansion import ActionSpace

TOP_ACTIONS = 10
COLUMNS = 4
FRAME = "#e8590c"


def action_bars(result: VerifierResult, policy: str) -> Figure:
    """The actions that are chosen most, beside the oracle's use of them; the best static one is marked."""
    ours, oracle = result.action_shares(policy), result.action_shares("oracle")
    static = result.space.index(result.best_static)
    top = [int(action) for action in np.argsort(-ours, kind="stable")[:TOP_ACTIONS] if ours[action] > 0]
    shown = top if static in top else [*top, static]
    figure = new_figure(0.95 + 0.3 * len(shown))
    axes = figure.subplots()
    rows = np.arange(len(shown))
    axes.barh(rows - 0.19, ours[shown], 0.36, color=COLOURS["selector"], alpha=0.9, label="selector")
    axes.barh(rows + 0.19, oracle[shown], 0.36, color=COLOURS["oracle"], alpha=0.6, label="oracle")
    names = [f"{result.space.expansions[action]}{' ★' if action == static else ''}" for action in shown]
    axes.set_yticks(rows, names)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("share of roots; (K, L1, L2), ★ best static")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def action_map(result: VerifierResult, policy: str) -> Figure:
    """Share of roots by K, trunk length and branch length: chains as a strip, a panel for each K above 1."""
    shares = result.action_shares(policy)
    tables = _tables(result.space, shares)
    columns = min(COLUMNS, max(len(tables) - 1, 1))
    branching = [f"K = {branches}" for branches in list(tables)[1:]]
    lines = [branching[start : start + columns] for start in range(0, len(branching), columns)]
    layout: Any = [["K = 1"] * columns] + [line + ["."] * (columns - len(line)) for line in lines]
    figure = new_figure(0.85 + 1.45 * len(lines), WIDTH if columns < COLUMNS else WIDTH + 0.6)
    axes = figure.subplot_mosaic(layout, height_ratios=[0.28] + [1.0] * len(lines))
    norm = PowerNorm(0.5, 0, max(float(shares.max()), 1e-9))
    for branches, table in tables.items():
        mesh = _panel(axes[f"K = {branches}"], table, norm, branches)
    static = result.best_static
    column = static.branch_length - (static.num_branches > 1)
    frame = Rectangle((column, static.trunk_length), 1, 1, fill=False, ec=FRAME, lw=2, clip_on=False, zorder=5)
    axes[f"K = {static.num_branches}"].add_patch(frame)
    for line in lines:
        axes[line[0]].set_ylabel("L1", labelpad=1)
    bar = figure.colorbar(mesh, ax=list(axes.values()), pad=0.02, fraction=0.04, aspect=22)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=0)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    return figure


def _tables(space: ActionSpace, shares: Floats) -> dict[int, Floats]:
    """Shares by K: chains `[1, length + 1]`, trees `[L1 + 1, L2]`."""
    branches, trunk, length = space.limits
    tables = {1: np.zeros((1, trunk + length + 1))}
    tables |= {k: np.zeros((trunk + 1, length)) for k in range(2, branches + 1) if length}
    for share, (k, l1, l2) in zip(shares, space.expansions, strict=True):
        tables[k][l1, l2 - (k > 1)] = share
    return tables


def _panel(axes: Axes, table: Floats, norm: PowerNorm, branches: int) -> QuadMesh:
    mesh = axes.pcolormesh(table, cmap="Purples", norm=norm, edgecolors=MUTED, linewidth=0.25)
    rows, columns = table.shape
    steps = [range(0, size, 1 if size <= 5 else 2 if size <= 9 else 4) for size in (rows, columns)]
    first = int(branches > 1)
    axes.set_yticks([tick + 0.5 for tick in steps[0]], [str(tick) for tick in steps[0]] if first else [""])
    axes.set_xticks([tick + 0.5 for tick in steps[1]], [str(tick + first) for tick in steps[1]])
    axes.tick_params(length=0, labelsize=8, pad=1.5)
    axes.spines[:].set_visible(False)
    axes.set_title(f"K = {branches}" if first else "chains (K = 1) by length", pad=3)
    if first:
        axes.set_xlabel("L2", labelpad=1)
    return mesh


def reliability_chart(result: VerifierResult) -> Figure:
    """Predicted against measured block efficiency by decile; the diagonal is right."""
    figure = new_figure(3.6)
    axes = figure.subplots()
    shades = {"all actions": COLOURS["static"], "chosen actions": COLOURS["selector"]}
    values = []
    for name, table in result.calibration().items():
        predicted, observed = [entry.predicted for entry in table], [entry.observed for entry in table]
        axes.plot(predicted, observed, "o-", color=shades[name], ms=5, lw=1.3, label=name)
        values += predicted + observed
    ends = [min(values), max(values)]
    axes.plot(ends, ends, color=MUTED, lw=1, ls="--", zorder=0)
    axes.set_xlabel("predicted tokens a step")
    axes.set_ylabel("measured tokens a step")
    axes.legend(loc="upper left")
    return figure


def time_chart(result: VerifierResult) -> Figure:
    """Every action's mean block efficiency against its time; rays join equal throughput."""
    roots, outcomes = result.scores.roots, result.scores.outcomes
    milliseconds, tokens = 1e3 * roots.times.mean(0), roots.efficiency.mean(0)
    figure = new_figure(3.8)
    axes = figure.subplots()
    axes.scatter(milliseconds, tokens, s=9, color=MUTED, alpha=0.55, lw=0, label="static trees")
    marks = [
        ("plain", "s", "plain"),
        ("best_static", "D", "best static"),
        (result.selector or "", "o", "selector"),
        ("oracle", "^", "oracle"),
    ]
    for policy, marker, name in marks:
        if policy in outcomes:
            kind = policy.split("_")[0].replace("best", "static")
            place = 1e3 * outcomes[policy].seconds.mean(), outcomes[policy].efficiency.mean()
            axes.plot(*place, marker, color=COLOURS[kind], mec=INK, mew=0.6, ms=8, ls="none", label=name, zorder=4)
    right, top = 1.08 * milliseconds.max(), 1.12 * max(tokens.max(), outcomes["oracle"].efficiency.mean())
    for policy, shade in (("plain", COLOURS["plain"]), ("best_static", COLOURS["static"])):
        slope = outcomes[policy].efficiency.mean() / outcomes[policy].seconds.mean()
        axes.plot([0, right], [0, right * slope / 1e3], color=shade, lw=0.9, ls=":", zorder=0)
    axes.set_xlim(0, right)
    axes.set_ylim(0, top)
    axes.set_xlabel("time of a step, ms")
    axes.set_ylabel("tokens a step")
    figure.legend(loc="outside upper center", ncols=3)
    return figure
