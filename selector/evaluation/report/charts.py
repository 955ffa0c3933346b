"""Pictures of throughput: policies side by side, share of the gap, tasks by settings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from selector.evaluation.report.prose import LABELS, number
from selector.evaluation.report.style import COLOURS, INK, MUTED, WIDTH, colour, errors, new_figure
from selector.evaluation.results import VerifierResult

GAP_LIMITS = (-0.75, 1.5)
ON_CELL = "#16181d"  # not INK, which turns white on a dark page


def throughput_bars(result: VerifierResult, highest: float) -> Figure:
    """Throughput over plain decoding, with intervals; `highest` makes all verifiers share one axis."""
    policies = list(result.scores.outcomes)
    figure = new_figure(0.75 + 0.27 * len(policies))
    axes = figure.subplots()
    for row, policy in enumerate(policies):
        ratio = result.scores.ratio(policy, "plain")
        value = ratio.value or 0.0
        alpha = 0.45 if policy == "oracle_in_sample" else 0.9
        axes.barh(row, value, color=colour(policy), alpha=alpha, height=0.68)
        axes.errorbar(value, row, xerr=errors(value, ratio.low, ratio.high), color=INK, capsize=2, lw=1)
        axes.text(1.01, row, f"{value:.2f}", va="center", fontsize=8.5, transform=axes.get_yaxis_transform())
    axes.axvline(1, color=MUTED, lw=0.8, ls=":")
    static = result.scores.ratio("best_static", "plain").value or 0.0
    axes.axvline(static, color=COLOURS["static"], lw=1, ls="--", zorder=0)
    axes.set_yticks(range(len(policies)), [LABELS.get(policy, policy) for policy in policies])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.03 * highest)
    axes.set_xlabel("tokens per second over plain decoding")
    return figure


def overview_chart(results: Sequence[VerifierResult]) -> Figure:
    """One line a verifier: its best static tree, its selector, its oracle, over plain decoding."""
    figure = new_figure(1.2 + 0.36 * len(results))
    axes = figure.subplots()
    marks = {"best_static": ("D", "best static"), "selector": ("o", "selector"), "oracle": ("^", "oracle")}
    for row, result in enumerate(results):
        for kind, (marker, name) in marks.items():
            policy = result.selector if kind == "selector" else kind
            if policy is None:
                continue
            ratio = result.scores.ratio(policy, "plain")
            value, height = ratio.value or 0.0, row + {"best_static": -0.2, "selector": 0.0, "oracle": 0.2}[kind]
            spread = errors(value, ratio.low, ratio.high)
            axes.errorbar(value, height, xerr=spread, fmt=marker, color=colour(policy), ms=6, lw=1.6, label=name)
    axes.axvline(1, color=MUTED, lw=0.9, ls="--", zorder=0)
    axes.set_yticks(range(len(results)), [result.verifier for result in results])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.set_xlabel("tokens per second over plain decoding (dashed)")
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)
    return figure


def gap_chart(results: Sequence[VerifierResult]) -> Figure:
    """Share of the way from best static (0) to oracle (1), both heads of every selector."""
    rows = [(result, head) for result in results for head in ("selector_policy", "selector_regressor")]
    figure = new_figure(0.9 + 0.3 * len(rows))
    axes = figure.subplots()
    low_limit, high_limit = GAP_LIMITS
    for row, (result, policy) in enumerate(rows):
        gap = result.scores.gap_recovered(policy)
        if gap.value is None:
            axes.text(0.02, row, "no gap to recover", va="center", fontsize=8.5, color=MUTED)
            continue
        value = float(np.clip(gap.value, low_limit, high_limit))
        shade = colour(policy) if gap.value >= 0 else COLOURS["loss"]
        if gap.low is not None and gap.high is not None:
            ends = np.clip([gap.low, gap.high], low_limit, high_limit)
            axes.plot(ends, [row, row], color=shade, lw=2, alpha=0.55, solid_capstyle="butt")
        marker = "o" if value == gap.value else ("<" if gap.value < low_limit else ">")
        axes.plot(value, row, marker, color=shade, ms=7)
        side = "left" if value < -0.5 else "center"
        text = number(100 * gap.value, 0, "%")
        axes.annotate(text, (value, row), (0, 6), textcoords="offset points", ha=side, fontsize=8.5)
    for place, name in ((0, "best static"), (1, "oracle")):
        axes.axvline(place, color=MUTED, lw=0.9, ls="--", zorder=0)
        axes.text(place, -0.75, name, ha="center", va="bottom", fontsize=8.5, color=MUTED)
    names = {"selector_policy": "policy", "selector_regressor": "regressor"}
    axes.set_yticks(range(len(rows)), [f"{result.verifier}, {names[policy]}" for result, policy in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.8)
    axes.set_xlim(low_limit - 0.05, high_limit + 0.05)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("share of the oracle's gain that is recovered", labelpad=4)
    return figure


def cell_map(result: VerifierResult) -> Figure:
    """Ratio to the best static tree by task and setting; cells that lose are framed."""
    tasks = sorted({cell.task for cell in result.cells})
    settings = sorted({cell.setting for cell in result.cells})
    figure = new_figure(1.15 + 0.36 * len(tasks), max(WIDTH, 1.4 + 0.42 * len(settings)))
    axes = figure.subplots()
    ratios = [cell.ratio.value or 1.0 for cell in result.cells]
    spread = max(0.02, float(np.max(np.abs(np.array(ratios) - 1))))
    table = np.full((len(tasks), len(settings)), np.nan)
    for cell in result.cells:
        table[tasks.index(cell.task), settings.index(cell.setting)] = cell.ratio.value
    mesh = axes.pcolormesh(table, cmap="RdBu", norm=TwoSlopeNorm(1, 1 - spread, 1 + spread), edgecolors="none")
    for cell in result.cells:
        column, row = settings.index(cell.setting), tasks.index(cell.task)
        value = cell.ratio.value or 1.0
        ink = "white" if abs(value - 1) > 0.6 * spread else ON_CELL
        axes.text(column + 0.5, row + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=8, color=ink)
        if cell.loses:
            frame = Rectangle((column + 0.05, row + 0.05), 0.9, 0.9, fill=False, ec="#8f1d18", lw=1.6)
            axes.add_patch(frame)
    axes.set_xticks(np.arange(len(settings)) + 0.5, [f"{t:g}\n{p:g}" for t, p in settings])
    axes.set_yticks(np.arange(len(tasks)) + 0.5, tasks)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.invert_yaxis()
    axes.set_xlabel("temperature (above) and top-p (below)")
    bar = figure.colorbar(mesh, ax=axes, pad=0.02, fraction=0.05, aspect=16)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=0)
    return figure


def study_chart(result: VerifierResult) -> Figure:
    """Ratio to the best static tree by inputs, and by share of the training prompts."""
    kinds = {
        kind: [entry for entry in result.findings if entry.kind == kind] for kind in ("ablation", "learning curve")
    }
    figure = new_figure(1.0 + 0.26 * len(result.findings))
    panels = figure.subplots(len(kinds), sharex=True, height_ratios=[len(entries) for entries in kinds.values()])
    for axes, (kind, entries) in zip(np.atleast_1d(panels), kinds.items(), strict=True):
        names = [entry.variant if kind == "ablation" else f"{entry.num_prompts:.0f} prompts" for entry in entries]
        for row, entry in enumerate(entries):
            value = entry.ratio.value or 1.0
            spread = errors(value, entry.ratio.low, entry.ratio.high)
            axes.errorbar(value, row, xerr=spread, fmt="o", color=COLOURS["selector"], ms=5, lw=1.5)
        axes.axvline(1, color=COLOURS["static"], lw=1, ls="--", zorder=0)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_title(kind)
    axes.set_xlabel("throughput over the best static tree (dashed)")
    return figure
