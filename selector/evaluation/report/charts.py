"""Pictures of the report: paired ratios with their intervals, predictions against labels, tokens against time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selector.evaluation.machine_map import MachineMap, MachineRow
from selector.evaluation.report.prose import LABELS, Combination
from selector.evaluation.report.style import COLOURS, INK, MUTED, colour, new_figure
from selector.evaluation.results import VerifierResult
from selector.statistics import Floats, Interval

WIDE = 5.8  # inches; figures in words stand beside the bars
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1)
OVER_STATIC = "tokens per second over those of the best static tree (dashed)"


def bar_with_interval(axes: Axes, row: float, ratio: Interval, shade: str, marker: str = "o") -> None:
    """One figure: a marker on the bar of its interval, and in words to the right of the axes."""
    if ratio.value is not None:
        if ratio.low is not None and ratio.high is not None:
            axes.plot([ratio.low, ratio.high], [row, row], color=shade, lw=5, alpha=0.35, solid_capstyle="butt")
        axes.plot(ratio.value, row, marker, color=shade, ms=5.5, ls="none")
    axes.text(1.03, row, f"{ratio:.3f}", va="center", fontsize=8.5, transform=axes.get_yaxis_transform())


def label_rows(axes: Axes, labels: Sequence[str], xlabel: str = "") -> None:
    """Names of rows from the top down, and the line at 1."""
    axes.axvline(1, color=COLOURS["static"], lw=1, ls="--", zorder=0)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(xlabel)


def overview_chart(combinations: Sequence[Combination]) -> Figure:
    """Each verifier's selector and oracle over its best static tree, paired; the fastest combination first."""
    figure = new_figure(1.2 + 0.46 * len(combinations), WIDE)
    axes = figure.subplots()
    for row, combination in enumerate(combinations):
        for policy, marker, offset in (("selector", "o", -0.17), ("oracle", "^", 0.17)):
            ratio = combination.figures.get((policy, "ratio_to_best_static"))
            if ratio is not None:
                bar_with_interval(axes, row + offset, ratio, colour(policy), marker)
    for policy, marker in (("selector", "o"), ("oracle", "^")):
        axes.plot([], [], marker, color=colour(policy), label=policy)
    label_rows(axes, [f"{one.verifier}, {one.figure('ratio_to_plain').value:.2f}× plain" for one in combinations])
    axes.set_xlabel(OVER_STATIC)
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def draft_cost_chart(mapped: MachineMap) -> Figure:
    """Gains of selector, copy rule and oracle over the draft's cost on the first machine; all machines as numbers."""
    figure = new_figure(3.9, WIDE)
    axes = figure.subplots()
    for policy, marker in (("selector", "o"), ("rule", "s"), ("oracle", "^")):
        shade, points = colour(policy), _over_static(mapped.sweep, policy)
        if not len(points):
            continue
        axes.plot(points[:, 0], points[:, 1], color=shade, lw=1.5, label="copy rule" if policy == "rule" else policy)
        axes.fill_between(points[:, 0], points[:, 2], points[:, 3], color=shade, alpha=0.2, lw=0)
        for number, (cost, ratio, _, _) in enumerate(_over_static(mapped.of(mapped.verifier), policy), 1):
            axes.plot(cost, ratio, marker, color=shade, mec=INK, mew=0.6, ms=6, zorder=4)
            axes.annotate(str(number), (cost, ratio), (5, 4), textcoords="offset points", fontsize=8)
    axes.axhline(1, color=COLOURS["static"], lw=1, ls="--", zorder=0)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set_xlabel("time of a draft pass over that of a target pass")
    axes.set_ylabel("over the best static tree")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def _over_static(rows: Sequence[MachineRow], policy: str) -> Floats:
    """The draft's cost, a policy's ratio to the best static tree, and the ends of its interval, `[rows, 4]`."""
    ratios: list[Interval | None] = [getattr(row, f"{policy}_over_static") for row in rows]
    points = [(row.draft_cost, *ratio) for row, ratio in zip(rows, ratios, strict=True) if ratio is not None]
    return np.array(points, dtype=np.float64).reshape(-1, 4)


def policies_chart(result: VerifierResult) -> Figure:
    """All policies that speculate over the best static tree."""
    policies = [name for name in result.scores.outcomes if name not in ("plain", "no_drafting", "best_static")]
    figure = new_figure(0.8 + 0.24 * len(policies), WIDE)
    axes = figure.subplots()
    for row, policy in enumerate(policies):
        bar_with_interval(axes, row, result.scores.ratio(policy, "best_static"), colour(policy))
    label_rows(axes, [LABELS[policy] for policy in policies], OVER_STATIC)
    return figure


def study_chart(result: VerifierResult) -> Figure:
    """Ratio to the best static tree by inputs, and by number of training prompts."""
    kinds = {kind: [one for one in result.findings if one.kind == kind] for kind in ("ablation", "learning curve")}
    figure = new_figure(1.0 + 0.25 * len(result.findings), WIDE)
    panels = figure.subplots(len(kinds), sharex=True, height_ratios=[len(entries) for entries in kinds.values()])
    for axes, (kind, entries) in zip(panels, kinds.items(), strict=True):
        for row, entry in enumerate(entries):
            bar_with_interval(axes, row, entry.ratio, COLOURS["selector"])
        names = [one.variant if kind == "ablation" else f"{one.num_prompts:.0f} prompts" for one in entries]
        label_rows(axes, names, OVER_STATIC if kind == "learning curve" else "")
        axes.set_title(kind)
    return figure


def reliability_chart(result: VerifierResult) -> Figure:
    """Predicted against measured block efficiency by decile; the diagonal is right."""
    figure = new_figure(3.4)
    axes = figure.subplots()
    shades = {"all actions": COLOURS["static"], "chosen actions": COLOURS["selector"]}
    for name, table in result.calibration().items():
        predicted, observed = [one.predicted for one in table], [one.observed for one in table]
        axes.plot(predicted, observed, "o-", color=shades[name], ms=5, lw=1.3, label=name)
    axes.axline((1, 1), slope=1, color=MUTED, lw=1, ls="--", zorder=0)
    axes.set_xlabel("predicted tokens a step")
    axes.set_ylabel("measured tokens a step")
    axes.legend(loc="upper left")
    return figure


def time_chart(result: VerifierResult) -> Figure:
    """Every action's mean block efficiency against its time; rays join equal throughput."""
    roots, outcomes = result.scores.roots, result.scores.outcomes
    milliseconds, tokens = 1e3 * roots.times.mean(0), roots.efficiency.mean(0)
    figure = new_figure(3.4)
    axes = figure.subplots()
    axes.scatter(milliseconds, tokens, s=9, color=MUTED, alpha=0.55, lw=0, label="static trees")
    right, top = 1.08 * milliseconds.max(), 1.12 * max(tokens.max(), outcomes["oracle"].efficiency.mean())
    for policy, marker in (("plain", "s"), ("best_static", "D"), ("selector", "o"), ("oracle", "^")):
        if policy in outcomes:
            time, yielded = 1e3 * outcomes[policy].seconds.mean(), outcomes[policy].efficiency.mean()
            shade, name = colour(policy), LABELS[policy]
            axes.plot(time, yielded, marker, color=shade, mec=INK, mew=0.6, ms=7, ls="none", label=name, zorder=4)
            if policy in ("plain", "best_static"):
                axes.plot([0, right], [0, right * yielded / time], color=shade, lw=0.9, ls=":", zorder=0)
    axes.set_xlim(0, right)
    axes.set_ylim(0, top)
    axes.set_xlabel("time of a step, ms")
    axes.set_ylabel("tokens a step")
    figure.legend(loc="outside upper center", ncols=3)
    return figure
