"""The parts of the HTML report: words, pictures, tables, and the setting in which all of it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure

from selector.artifacts import git_revision, versions
from selector.config import EvaluateConfig
from selector.dataset.records import RootDataset
from selector.evaluation.report import action_charts as action_plots
from selector.evaluation.report import charts as plots
from selector.evaluation.report import prose as words
from selector.evaluation.report.page import bullets, card, facts, group, page, table, tag
from selector.evaluation.report.style import styled, to_svg
from selector.evaluation.results import VerifierResult
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint

TITLE = "Selector evaluation"


@dataclass(frozen=True)
class Setting:
    """What was evaluated, on what."""

    train: RootDataset
    test: RootDataset
    profile: LatencyProfile
    config: EvaluateConfig
    checkpoints: list[SelectorCheckpoint]

    def selectors(self, verifier: str) -> list[SelectorCheckpoint]:
        """One verifier's; several are training seeds."""
        return [checkpoint for checkpoint in self.checkpoints if checkpoint.config.verifier == verifier]


def report_html(results: Sequence[VerifierResult], setting: Setting) -> str:
    """The whole report."""
    results = sorted(results, key=lambda result: not result.selector)
    with styled():
        body = [*_words(results, setting), *_pictures(results), *_verifier_pictures(results)]
    return page(TITLE, [*body, *_tables(results), *_setting(setting)])


def _selected(results: Sequence[VerifierResult]) -> list[VerifierResult]:
    return [result for result in results if result.selector]


def _words(results: Sequence[VerifierResult], setting: Setting) -> Iterator[str]:
    prompts, level = len(set(setting.test.prompt_ids)), setting.config.level
    yield f"<h1>{TITLE}</h1>"
    yield (
        f'<p class="soft">{prompts} held-out prompts, {len(setting.test)} roots; brackets are {level:.0%} intervals '
        "from a paired bootstrap over prompts. Throughput is computed from labels and measured pass times.</p>"
    )
    yield group(_tile(result) for result in _selected(results))
    best = max(results, key=lambda result: result.static_rate)
    cards = [
        card(result.verifier, bullets([
            *words.selector_sentences(result, best),
            *words.training_sentences(result, setting.selectors(result.verifier)),
            words.oracle_sentence(result),
        ]))
        for result in _selected(results)
    ]  # fmt: skip
    yield "<h2>In short</h2>"
    yield f"<p>{escape(' '.join(words.overview(results)))}</p>"
    yield group(cards, "grid wide")


def _tile(result: VerifierResult) -> str:
    assert result.selector is not None
    static, plain = (result.scores.ratio(result.selector, name) for name in ("best_static", "plain"))
    return card(
        f"{result.verifier} with selector",
        f'<div class="big">{words.number(static.value)}×</div><p>best static tree {tag(words.verdict(static))}</p>'
        f'<p class="soft">[{words.number(static.low)}, {words.number(static.high)}]; '
        f"{words.with_interval(plain, 2)} × plain decoding</p>",
    )


def _draw(key: str, title: str, note: str, make: Callable[[], Figure]) -> str:
    return card(title, to_svg(make(), key, title), note)


def _pictures(results: Sequence[VerifierResult]) -> Iterator[str]:
    tops = [result.scores.ratio(policy, "plain") for result in results for policy in result.scores.outcomes]
    highest = max(ratio.high or ratio.value or 1.0 for ratio in tops)
    yield "<h2>Throughput</h2>"
    note = "Tokens per second over plain decoding, with intervals. The oracle chooses on one half of a root's samples."
    cards = [_draw("overview", "All verifiers", note, lambda: plots.overview_chart(results))]
    if _selected(results):
        note = "0% is the best static tree, 100% the oracle. Below 0% the selector loses. Intervals that leave the "
        note += "picture are cut off."
        cards.append(_draw("gap", "Gap recovered", note, lambda: plots.gap_chart(_selected(results))))
    note = "Tokens per second over plain decoding, with intervals. Dashed: the best static tree."
    cards += [
        _draw(f"bars-{result.verifier}", result.verifier, note, lambda r=result: plots.throughput_bars(r, highest))  # type: ignore[misc]
        for result in results
    ]
    yield group(cards, "columns")


def _verifier_pictures(results: Sequence[VerifierResult]) -> Iterator[str]:
    for result in _selected(results):
        policy, name = result.selector or "", result.verifier
        head = policy.removeprefix("selector_")
        losing = f"{len(result.losing_cells)} of {len(result.cells)} cells lose (framed); "
        losing += f"by labels with noise, {result.losses.roots:.0%} of the roots do." if result.losses else ""
        yield f"<h2>{name}: what is chosen, and where it pays ({head} head)</h2>"
        yield group(
            [
                _draw(f"cells-{name}", "Ratio to the best static tree by task and setting", losing,
                      lambda r=result: plots.cell_map(r)),  # type: ignore[misc]
                _draw(f"top-{name}", "Actions chosen most", "",
                      lambda r=result, p=policy: action_plots.action_bars(r, p)),  # type: ignore[misc]
                _draw(f"map-{name}", "Share of roots by action", "Orange frame: the best static tree.",
                      lambda r=result, p=policy: action_plots.action_map(r, p)),  # type: ignore[misc]
                _draw(f"cal-{name}", "Predicted against measured block efficiency",
                      "By decile of the regressor's prediction. Chosen actions below the diagonal: it picks its own "
                      "optimistic errors.", lambda r=result: action_plots.reliability_chart(r)),  # type: ignore[misc]
                _draw(f"time-{name}", "Block efficiency against time",
                      "Each dot is an action, averaged over test roots. On a dotted line throughput is that of plain "
                      "decoding (grey) or of the best static tree (blue); above it is faster.",
                      lambda r=result: action_plots.time_chart(r)),  # type: ignore[misc]
            ],
            "columns",
        )  # fmt: skip


def _tables(results: Sequence[VerifierResult]) -> Iterator[str]:
    yield "<h2>Tables</h2>"
    header = ["policy", "tokens/s", "× plain", "× best static", "× best per setting", "tokens a step", "gap", "tree"]
    for result in results:
        rows, classes = [], []
        for policy, outcome in result.scores.outcomes.items():
            scores, static = result.scores, result.scores.ratio(policy, "best_static")
            actions = set(outcome.actions.ravel().tolist())
            rows.append([
                words.LABELS.get(policy, policy), words.with_interval(scores.throughput(policy), 1),
                words.with_interval(scores.ratio(policy, "plain")), words.with_interval(static),
                words.with_interval(scores.ratio(policy, "best_static_per_setting")),
                words.with_interval(scores.block_efficiency(policy), 2), words.percent(scores.gap_recovered(policy)),
                str(result.space.expansions[actions.pop()]) if len(actions) == 1 else f"{len(actions) or '–'}",
            ])  # fmt: skip
            loses = policy.startswith("selector") and words.verdict(static) == "loss"
            classes.append("lose" if loses else "strong" if policy == result.selector else "")
        note = words.oracle_sentence(result) + " Tree: the one that is always taken, or how many are used."
        yield group([card(result.verifier, table(header, rows, classes), note)], "stack")
    for result in _selected(results):
        yield f"<details><summary>{result.verifier}: tasks and settings, calibration</summary>"
        yield group([_cells(result), _calibration(result)], "columns") + "</details>"
    studied = [result for result in results if result.findings]
    if studied:
        yield "<h2>What it learns from</h2>"
        note = (
            "The linear model that selectors start from, cross-validated by prompt over the whole data set: throughput "
            "over the best static tree, with intervals over prompts. It pays for choosing."
        )
        yield group(
            (_draw(f"study-{r.verifier}", r.verifier, note, lambda r=r: plots.study_chart(r)) for r in studied),  # type: ignore[misc]
            "columns",
        )


def _cells(result: VerifierResult) -> str:
    rows = [
        [cell.task, f"{cell.setting[0]:g}", f"{cell.setting[1]:g}", words.with_interval(cell.ratio),
         str(cell.num_prompts), str(cell.num_roots)]
        for cell in result.cells
    ]  # fmt: skip
    losing = set(result.losing_cells)
    classes = ["lose" if cell in losing else "" for cell in result.cells]
    header = ["task", "temperature", "top-p", "× best static", "prompts", "roots"]
    return card("By task and setting", table(header, rows, classes), "Red cells lose; no interval below 4 prompts.")


def _calibration(result: VerifierResult) -> str:
    rows = [
        [name, str(place + 1), words.number(entry.predicted), words.number(entry.observed),
         words.number(entry.observed - entry.predicted), str(entry.size)]
        for name, bins in result.calibration().items() for place, entry in enumerate(bins)
    ]  # fmt: skip
    header = ["over", "decile", "predicted", "measured", "difference", "labels"]
    note = "Predictions of the first seed." if len(result.run_ratios("selector_regressor")) > 1 else ""
    return card("Predicted block efficiency", table(header, rows), note)


def _setting(setting: Setting) -> Iterator[str]:
    manifest, profile, test = setting.test.manifest, setting.profile, setting.test
    tasks = {task: test.tasks.count(task) for task in sorted(set(test.tasks))}
    settings = sorted({(round(t, 6), round(p, 6)) for t, p in test.settings.tolist()})
    machine = "; ".join(f"{name}: {value}" for name, value in profile.machine.items())
    verifiers = dict.fromkeys(checkpoint.config.verifier for checkpoint in setting.checkpoints)
    trained = [_trained(verifier, setting.selectors(verifier)) for verifier in verifiers]
    yield "<h2>Setting</h2>"
    yield card("What this holds for", facts([
        ("machine", machine or "not recorded"),
        ("profile", _profile(profile)),
        ("models", f"target {manifest.target_fingerprint}, draft {manifest.draft_fingerprint}, {manifest.dtype}"),
        ("draft's warp", str(manifest.draft_warp)),
        ("data set", f"{manifest.hash()[:12]}, seed {manifest.seed}, revision {manifest.git_revision or 'unknown'}"),
        ("chosen on", f"{len(set(setting.train.prompt_ids))} prompts, {len(setting.train)} roots"),
        ("scored on", f"{len(set(test.prompt_ids))} prompts, {len(test)} roots: "
                      + ", ".join(f"{task} {count}" for task, count in tasks.items())),
        ("sampling settings", "; ".join(f"T {t:g}, top-p {p:g}" for t, p in settings)),
        ("action space", f"up to {manifest.space.limits}, {len(manifest.space)} trees"),
        ("selectors", ", ".join(trained) or "none"),
        ("intervals", f"{setting.config.level:.0%}, {setting.config.bootstrap} resamples of prompts, "
                      f"seed {setting.config.seed}; the same resamples for every policy and verifier"),
        ("throughput", "expected tokens over step times within a trajectory, trajectories weighed by their tokens and "
                       "joined by their times; selectors and references also pay "
                       f"{1e3 * profile.selector_seconds:.2f} ms a step for choosing"),
        ("evaluated with", ", ".join(f"{name} {version}" for name, version in versions().items())
                           + f", revision {git_revision() or 'unknown'}"),
    ]))  # fmt: skip


def _trained(verifier: str, checkpoints: Sequence[SelectorCheckpoint]) -> str:
    seeds = f"{len(checkpoints)} seeds, " if len(checkpoints) > 1 else ""
    hashes = dict.fromkeys(checkpoint.config.data_hash[:12] for checkpoint in checkpoints)
    return f"{verifier} ({seeds}data {' and '.join(hashes)})"


def _profile(profile: LatencyProfile) -> str:
    middle = len(profile.contexts) // 2
    draft, target, plain = (1e3 * seconds for seconds in (
        profile.draft_seconds[middle][0], profile.target_seconds[middle][0], profile.plain_seconds[middle]
    ))  # fmt: skip
    return (
        f"at {profile.contexts[middle]} tokens of context: draft pass {draft:.2f} ms, target pass {target:.2f} ms "
        f"(width {profile.widths[0]}), plain token {plain:.2f} ms"
    )
