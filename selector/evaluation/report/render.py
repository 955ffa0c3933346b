"""The HTML report: what the template shows, drawn and gathered; the words and tables are in the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from selector.artifacts.origin import git_revision, versions
from selector.config import EvaluateConfig
from selector.dataset.dataset import RootDataset
from selector.evaluation.machine_map import MachineMap
from selector.evaluation.report import charts
from selector.evaluation.report.prose import LABELS, answer, combinations
from selector.evaluation.report.style import styled, to_svg
from selector.evaluation.results import VerifierResult
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.offline.labelled_roots import setting_pairs
from selector.statistics import Interval, as_text

TEMPLATE = "template.html.j2"
TOP_ACTIONS = 10


@dataclass(frozen=True)
class Subject:
    """What was evaluated, on what; the roots of `train` chose the static trees, those of `test` score."""

    train: RootDataset
    test: RootDataset
    profile: LatencyProfile
    config: EvaluateConfig
    checkpoints: list[SelectorCheckpoint]

    def selectors(self, verifier: str) -> list[SelectorCheckpoint]:
        """One verifier's; several are training seeds."""
        return [checkpoint for checkpoint in self.checkpoints if checkpoint.config.verifier == verifier]

    def model(self, name: str) -> str:
        """The `target` or `draft` by its hub id or the end of its path; its fingerprint where no name is recorded."""
        manifest = self.test.manifest
        return str(getattr(manifest.models, name).title or getattr(manifest, f"{name}_fingerprint"))

    @property
    def machine(self) -> str:
        """What the pass times are of; the models too, where the profile is not bound to this pair."""
        known = self.profile.provenance
        bound = not known.target or "target" in self.profile.machine
        return self.profile.hardware + ("" if bound else f", with pass times of {known.target} and {known.draft}")


def render_report(
    results: Sequence[VerifierResult], rows: Sequence[Mapping[str, Any]], mapped: MachineMap, subject: Subject
) -> str:
    """The whole page; `rows` are those of metrics.json."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(text=as_text, interval=format)
    ordered, own = combinations(rows), {result.verifier: result for result in results}
    results = [own[combination.verifier] for combination in ordered]
    with styled():
        return environment.get_template(TEMPLATE).render(
            answer=answer(rows), combinations=ordered, results=results, subject=subject, labels=LABELS,
            date=date.today().isoformat(), prompts=len(set(subject.test.prompt_ids)), facts=_facts(subject),
            looping={row["verifier"]: _interval(row) for row in rows if _of_selector_in_loops(row)},
            overview=to_svg(charts.overview_chart(ordered), "overview", "Over the best static tree"),
            mapped=mapped, sweep=mapped.sweep and to_svg(charts.draft_cost_chart(mapped), "draft-cost", "Draft's cost"),
            pictures={result.verifier: _pictures(result) for result in results},
            chosen={result.verifier: _chosen(result) for result in results if result.selector},
            trained={result.verifier: _trained(result, subject) for result in results if result.selector},
        )  # fmt: skip


def _of_selector_in_loops(row: Mapping[str, Any]) -> bool:
    return (row["policy"], row["metric"]) == ("selector", "ratio_to_best_static_looping")


def _interval(row: Mapping[str, Any]) -> Interval:
    return Interval(row["value"], row["low"], row["high"])


def _pictures(result: VerifierResult) -> dict[str, Markup]:
    """The verifier's charts by title."""
    drawn = {"Policies": charts.policies_chart(result), "Tokens and time of a step": charts.time_chart(result)}
    if result.selector:
        drawn["Predicted and measured tokens a step"] = charts.reliability_chart(result)
    if result.findings:
        drawn["What the linear model learns from"] = charts.study_chart(result)
    return {
        title: to_svg(figure, f"{result.verifier}-{place}", title)
        for place, (title, figure) in enumerate(drawn.items())
    }


def _chosen(result: VerifierResult) -> list[dict[str, Any]]:
    """The trees that the selector chooses most and the best static one, with shares of roots, tokens and time."""
    ours, oracle = result.action_shares("selector"), result.action_shares("oracle")
    static = result.space.index(result.best_static)
    top = [int(action) for action in np.argsort(-ours, kind="stable")[:TOP_ACTIONS] if ours[action] > 0]
    roots = result.scores.roots
    return [
        {"tree": result.space.expansions[action], "static": action == static, "selector": ours[action],
         "oracle": oracle[action], "tokens": roots.efficiency[:, action].mean(),
         "milliseconds": 1e3 * roots.times[:, action].mean()}
        for action in dict.fromkeys([*top, static])
    ]  # fmt: skip


def _trained(result: VerifierResult, subject: Subject) -> list[dict[str, Any]]:
    """One row a training seed: its ratio, its head, the model that validation kept, and what decoding runs."""
    return [
        {"ratio": ratio, "head": selector.config.default_head, "model": _model(selector.config.metrics),
         "runs": "selector" if selector.beats_static else "static tree", "data": selector.config.data_hash[:12]}
        for ratio, selector in zip(result.run_ratios("selector"), subject.selectors(result.verifier), strict=True)
    ]  # fmt: skip


def _model(metrics: Mapping[str, float]) -> str:
    if not {"learned", "corrected"} <= metrics.keys():
        return "not recorded"
    return "static" if not metrics["learned"] else "mlp" if metrics["corrected"] else "ridge"


def _settings(pairs: set[tuple[float, float]]) -> str:
    return "; ".join(f"T {temperature:g}, top-p {top_p:g}" for temperature, top_p in sorted(pairs)) or "none"


def _facts(subject: Subject) -> dict[str, str]:
    """The setting in which the figures hold."""
    manifest, profile, test, config = subject.test.manifest, subject.profile, subject.test, subject.config
    tasks = ", ".join(f"{task} {test.tasks.count(task)}" for task in sorted(set(test.tasks)))
    trained, settings = set(setting_pairs(subject.train)), set(setting_pairs(test))
    middle = len(profile.contexts) // 2
    draft, target, plain = (1e3 * seconds for seconds in (
        profile.draft_seconds[middle][0], profile.target_seconds[middle][0], profile.plain_seconds[middle]
    ))  # fmt: skip
    return {
        "machine": "; ".join(f"{name}: {value}" for name, value in profile.machine.items()) or "not recorded",
        "pass times come from": "; ".join(f"{name}: {text}" for name, text in vars(profile.provenance).items() if text),
        "pass times": f"at {profile.contexts[middle]} tokens of context: draft {draft:.2f} ms, target {target:.2f} ms "
                      f"(width {profile.widths[0]}), plain token {plain:.2f} ms; "
                      f"choosing {1e3 * profile.selector_seconds:.2f} ms a step",
        "target": manifest.models.target.describe(manifest.target_fingerprint),
        "draft": manifest.models.draft.describe(manifest.draft_fingerprint),
        "type of weights": manifest.models.weights or manifest.dtype,
        "draft's warp": str(manifest.draft_warp),
        "data set": f"{manifest.hash()[:12]}, seed {manifest.seed}, revision {manifest.git_revision or 'unknown'}",
        "chosen on": f"{len(set(subject.train.prompt_ids))} prompts, {len(subject.train)} roots",
        "scored on": f"{len(set(test.prompt_ids))} prompts, {len(test)} roots: {tasks}",
        "sampling settings": _settings(settings),
        "settings without test prompts": _settings(trained - settings),
        "settings without training prompts": _settings(settings - trained),
        "action space": f"up to {manifest.space.limits}, {len(manifest.space)} trees",
        "intervals": f"{config.level:.0%}, {config.bootstrap} resamples of prompts, seed {config.seed}, paired",
        "evaluated with": ", ".join(f"{name} {version}" for name, version in versions().items())
                          + f", revision {git_revision() or 'unknown'}",
    }  # fmt: skip
