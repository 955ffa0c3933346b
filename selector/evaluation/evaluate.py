"""Offline evaluation: selectors against their opponents on held-out prompts, as rows, and as a report.

No language model is needed: labels hold no time, so the same data set answers for any machine's profile.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from selector.artifacts.claims import claim_folder, sole_writer
from selector.artifacts.writing import atomic_write, write_json, write_text
from selector.config import EvaluateConfig
from selector.dataset.dataset import RootDataset
from selector.errors import UserError
from selector.evaluation.ablations import study
from selector.evaluation.cells import cell_table, losses
from selector.evaluation.machine_map import machine_map
from selector.evaluation.metrics import PolicyScores, metric_rows
from selector.evaluation.references import reference_outcomes
from selector.evaluation.report.charts import draft_cost_chart, overview_chart
from selector.evaluation.report.prose import combinations
from selector.evaluation.report.render import Subject, render_report
from selector.evaluation.report.style import save_png, styled
from selector.evaluation.results import VerifierResult
from selector.evaluation.selectors import check_fit, selector_outcomes
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.offline import baselines
from selector.offline.labelled_roots import build_roots, looping
from selector.statistics import Floats, resample_counts


def evaluate(
    checkpoints: Sequence[SelectorCheckpoint],
    dataset: RootDataset,
    profile: LatencyProfile | Mapping[str, LatencyProfile],
    config: EvaluateConfig,
    folder: Path | str,
    *,
    test_prompts: Collection[str] | None = None,
    training: RootDataset | None = None,
) -> list[dict[str, Any]]:
    """Evaluate on the test prompts of `dataset` and write `metrics.json`, `study.json`, `map.json`, `report.html` and
    two of its pictures, `overview.png` and `draft_cost.png`, into `folder`.

    Args:
        checkpoints: selectors, any number of any verifiers; several of one verifier are training seeds.
        dataset: roots with labels.
        profile: pass times of the machine in question, not necessarily the one of training; or those of
            several machines by name, which a map compares, the rest of the report being about the first.
        config: settings of the intervals, and whether the study of inputs and data is made.
        folder: new or empty, for what is written.
        test_prompts: prompt ids to score on; static trees and references are chosen on all other prompts.
        training: another data set to choose on; then every prompt of `dataset` (or `test_prompts`) is scored.

    Returns:
        rows `{"verifier", "policy", "metric", "value", "low", "high", "n_prompts"}`, those of metrics.json; an
        undefined figure or interval is None. Several seeds are averaged, and each has its own rows beside.

    Raises:
        UserError: checkpoints that do not fit the data, or no prompts to choose or to
            score on.

    Example:
        >>> data = ddte.RootDataset.load("runs/data")
        >>> selectors = [run.selector(name) for name in run.verifiers]
        >>> rows = ddte.evaluate(
        ...     selectors, data, profile, config.evaluate, "runs/report", test_prompts=run.splits.test
        ... )
    """
    folder = Path(folder)
    claim_folder("out", folder)
    machines = {profile.hardware: profile} if isinstance(profile, LatencyProfile) else profile
    profile = next(iter(machines.values()))
    profile.check_pair(dataset.manifest.target_fingerprint, dataset.manifest.draft_fingerprint)
    if disturbance := profile.disturbance():
        warnings.warn(f"evaluated under disturbed pass times: {disturbance}", stacklevel=2)
    for checkpoint in checkpoints:
        check_fit(checkpoint, dataset)
    train, scored = split(dataset, test_prompts, training)
    loops = looping(scored)
    test = scored if loops.all() else scored.subset(np.flatnonzero(~loops).tolist())
    with threadpool_limits(1):  # on small matrices the threads of numpy, torch and scikit-learn get in each other's way
        results = evaluate_verifiers(checkpoints, train, test, profile, config)
        if config.study:
            results = _studied(results, train, profile, config, checkpoints)
        rows = all_rows(results)
        if loops.any() and not loops.all():
            apart = scored.subset(np.flatnonzero(loops).tolist())
            rows += _of_looping(evaluate_verifiers(checkpoints, train, apart, profile, config))
        mapped = machine_map(checkpoints, train, test, machines, _mapped_verifier(rows, results), config)
    html = render_report(results, rows, mapped, Subject(train, test, profile, config, list(checkpoints)))
    with sole_writer("out", folder), atomic_write(folder) as temporary:
        temporary.mkdir()
        write_json(temporary / "metrics.json", rows)
        write_json(temporary / "study.json", study_rows(results))
        write_json(temporary / "map.json", mapped.as_json())
        write_json(temporary / "selectors.json", [checkpoint.identity for checkpoint in checkpoints])
        write_text(temporary / "report.html", html)
        with styled():
            save_png(overview_chart(combinations(rows)), temporary / "overview.png")
            if mapped.sweep:
                save_png(draft_cost_chart(mapped), temporary / "draft_cost.png")
    return rows


def _mapped_verifier(rows: Sequence[dict[str, Any]], results: Sequence[VerifierResult]) -> str:
    """The fastest one that has a selector; the fastest where none has."""
    selectors = {result.verifier for result in results if result.selector}
    ordered = [combination.verifier for combination in combinations(rows)]
    return next((verifier for verifier in ordered if verifier in selectors), ordered[0])


def all_rows(results: Sequence[VerifierResult]) -> list[dict[str, Any]]:
    """The rows of metrics.json."""
    best = max(results, key=lambda result: result.static_rate)
    return [row for result in results for row in (*metric_rows(result.scores, best.scores), *_seed_rows(result))]


def _of_looping(results: Sequence[VerifierResult]) -> list[dict[str, Any]]:
    """Throughput over the best static tree in texts that loop, which the other figures leave out."""
    return [
        {**row, "metric": "ratio_to_best_static_looping"}
        for row in all_rows(results) if row["metric"] == "ratio_to_best_static"
    ]  # fmt: skip


def _seed_rows(result: VerifierResult) -> list[dict[str, Any]]:
    """Each of several seeds by itself, in the order of the checkpoints; the other rows hold their mean."""
    policies = [policy for policy in result.scores.outcomes if policy.startswith("selector")]
    ratios = {policy: result.run_ratios(policy) for policy in policies}
    return [
        {"verifier": result.verifier, "policy": policy, "metric": f"ratio_to_best_static_seed_{number}",
         **ratio._asdict(), "n_prompts": len(result.scores.roots.prompt_names)}
        for policy, runs in ratios.items() if len(runs) > 1 for number, ratio in enumerate(runs, 1)
    ]  # fmt: skip


def _studied(
    results: Sequence[VerifierResult],
    dataset: RootDataset,
    profile: LatencyProfile,
    config: EvaluateConfig,
    checkpoints: Sequence[SelectorCheckpoint],
) -> list[VerifierResult]:
    """The results, with the study's findings where there is a selector."""
    own = [result.verifier for result in results if result.selector]
    if not own:
        return list(results)
    found = study(
        dataset, own, profile, components=checkpoints[0].config.shape.components,
        resamples=config.bootstrap, level=config.level, seed=config.seed,
    )  # fmt: skip
    return [replace(result, findings=tuple(found.get(result.verifier, ()))) for result in results]


def study_rows(results: Sequence[VerifierResult]) -> list[dict[str, Any]]:
    """The rows of study.json."""
    return [
        {"verifier": result.verifier, "kind": finding.kind, "variant": finding.variant,
         "metric": "ratio_to_best_static", **finding.ratio._asdict(), "training_prompts": finding.num_prompts}
        for result in results for finding in result.findings
    ]  # fmt: skip


def split(
    dataset: RootDataset, test_prompts: Collection[str] | None, training: RootDataset | None
) -> tuple[RootDataset, RootDataset]:
    """The roots to choose on and the roots to score on; no prompt is in both."""
    scored = set(dataset.prompt_ids if test_prompts is None else test_prompts)
    source = dataset if training is None else training
    train = source.subset([row for row, prompt in enumerate(source.prompt_ids) if prompt not in scored])
    test = dataset.subset([row for row, prompt in enumerate(dataset.prompt_ids) if prompt in scored])
    if not len(test):
        raise UserError("test prompts are not in the data set: evaluate on the run's own data, or on a whole test set.")
    if not len(train) and training is not None:
        raise UserError("test_data holds every prompt of the training data: give prompts that nothing was trained on.")
    if not len(train):
        raise UserError("training prompts are missing: give the data set that the static trees can be chosen on.")
    if training is not None and training.manifest.action_space != dataset.manifest.action_space:
        raise UserError(
            f"action_space of the training data is {training.manifest.action_space}, of the test data "
            f"{dataset.manifest.action_space}: generate both with one configuration."
        )
    return train, test


def evaluate_verifiers(
    checkpoints: Sequence[SelectorCheckpoint],
    train: RootDataset,
    test: RootDataset,
    profile: LatencyProfile,
    config: EvaluateConfig,
) -> list[VerifierResult]:
    """One result for each verifier that both data sets have labels for; all see the same resampled prompts."""
    counts = resample_counts(len(set(test.prompt_ids)), config.bootstrap, config.seed)
    verifiers = [name for name in test.manifest.verifiers if name in train.manifest.verifiers]
    results = []
    for verifier in verifiers:
        own = [checkpoint for checkpoint in checkpoints if checkpoint.config.verifier == verifier]
        results.append(_evaluate_verifier(verifier, own, train, test, profile, config, counts))
    return results


def _evaluate_verifier(
    verifier: str,
    checkpoints: Sequence[SelectorCheckpoint],
    train: RootDataset,
    test: RootDataset,
    profile: LatencyProfile,
    config: EvaluateConfig,
    counts: Floats,
) -> VerifierResult:
    train_roots, roots = (build_roots(data, verifier, profile) for data in (train, test))
    outcomes = {
        "plain": baselines.plain_decoding(roots),
        "no_drafting": baselines.no_drafting(roots),
        **baselines.static_policies(train_roots, roots),
    }
    best = baselines.best_action(train_roots)
    static_rate = baselines.score_policy(train_roots, np.full(len(train_roots), best), train_roots.times).throughput
    predicted = None
    if checkpoints:
        outcomes |= reference_outcomes(train, test, train_roots, roots, config.seed)
        selected, predicted = selector_outcomes(checkpoints, test, roots)
        outcomes |= selected
    outcomes |= {"oracle": baselines.oracle(roots), "oracle_in_sample": baselines.oracle_in_sample(roots)}
    scores = PolicyScores(verifier, roots, outcomes, counts, config.level)
    if not checkpoints:
        return VerifierResult(scores, static_rate)
    cells = tuple(cell_table(scores, "selector", seed=config.seed))
    return VerifierResult(scores, static_rate, predicted, cells, losses(scores, "selector"))
