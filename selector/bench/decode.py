"""`ddte bench decode`: throughput of selectors, static trees and transformers' `generate` on the same prompts."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from data_gen.data_card import setting_name
from data_gen.prompts.prompts import load_prompts, rendered
from selector.artifacts.claims import check_file
from selector.artifacts.writing import write_json
from selector.bench.coin import StepArm, coin_text
from selector.bench.rates import Measured, Places
from selector.bench.step_arms import shared_warp, shipped_checkpoints, step_arms
from selector.bench.tables import exit_code, headlines, print_results
from selector.bench.texts import TextArm, text_arms, write_text
from selector.config import Config, DecodeConfig
from selector.decoding.pass_times import FOREIGN, foreign_times, machine_profile
from selector.decoding.policies import fixed_policy, parse_policy
from selector.distributions import Sampling
from selector.engine.huggingface import Pair, load_pair
from selector.errors import UserError
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.trees.verifiers import get_verifier

LOOK = 8  # texts after which the running interval is computed anew


class DecodeBench:
    """One run of the bench: texts on which step arms take turns, and between them texts of the others."""

    def __init__(
        self,
        pair: Pair,
        arms: Sequence[StepArm],
        texts: Sequence[TextArm],
        prompts: Sequence[Sequence[int]],
        settings: Sequence[Sampling],
        profile: LatencyProfile,
        *,
        max_new_tokens: int,
        tasks: Sequence[str] = (),
        draft_warp: Any = "same",
        seed: int = 0,
        resamples: int = 2000,
        level: float = 0.95,
    ) -> None:
        self.pair, self.prompts, self.settings, self.profile = pair, prompts, settings, profile
        self.max_new_tokens, self.draft_warp, self.seed = max_new_tokens, draft_warp, seed
        self.parts = parts_of(tasks, settings)
        self.width: float | None = None  # of the widest interval so far, see `Measured.width`
        self.measured = Measured(arms, [], texts, len(prompts), resamples, level, seed)

    def run(self, steps: int, whole_texts: int, until_width: float | None = None) -> Iterator[float]:
        """Measure until every arm has so many `steps`, or the widest interval is narrow enough; yields the share done.

        Arms of whole texts write the first `whole_texts` (prompt, setting) items, one after each shared text.
        """
        self._warm_up()
        counts = [0] * len(self.measured.arms)
        for number, place in enumerate(self._places()):
            sampling, seed = self.settings[place[1]], self.seed + number
            found = coin_text(
                self.pair, self.measured.arms, self.profile, self.prompts[place[0]], sampling, seed,
                self.max_new_tokens, self.draft_warp, place,
            )  # fmt: skip
            self.measured.records += found
            for record in found:
                counts[record.arm] += 1
            if number < min(whole_texts, len(self.prompts) * len(self.settings)):
                texts = list(self.measured.texts)
                for arm in texts[number % len(texts) :] + texts[: number % len(texts)]:
                    write_text(arm, self.pair, self.prompts[place[0]], sampling, seed, self.max_new_tokens, place)
            if number % LOOK == LOOK - 1:
                self.width = self.measured.width()
            yield min(1.0, min(counts) / steps)
            if min(counts) >= steps or (until_width is not None and self._narrow(until_width)):
                return

    def _places(self) -> Iterator[tuple[int, int]]:
        """(prompt, setting) in an order that is drawn anew each round, for ever."""
        rng = random.Random(self.seed)
        places = [(prompt, setting) for prompt in range(len(self.prompts)) for setting in range(len(self.settings))]
        while True:
            yield from rng.sample(places, len(places))

    def _warm_up(self) -> None:
        """A short text of each kind, not counted."""
        prompt, sampling = self.prompts[0], self.settings[0]
        coin_text(self.pair, self.measured.arms, self.profile, prompt, sampling, self.seed, 32, self.draft_warp)
        for arm in self.measured.texts:
            write_text(arm, self.pair, prompt, sampling, self.seed, 8, (0, 0))
            arm.runs.clear()
            arm.texts.clear()
            arm.failures.clear()

    def _narrow(self, width: float) -> bool:
        if len(self.measured.records) < 200 * len(self.measured.arms):
            return False
        return self.width is not None and self.width <= width


def parts_of(tasks: Sequence[str], settings: Sequence[Sampling]) -> dict[str, Places]:
    """The (prompt, setting) places of each task and of each setting, where there are several."""
    places = [(prompt, setting) for prompt in range(len(tasks)) for setting in range(len(settings))]
    by_task = {task: {place for place in places if tasks[place[0]] == task} for task in sorted(set(tasks))}
    by_setting = {
        setting_name(sampling.temperature, sampling.top_p): {place for place in places if place[1] == index}
        for index, sampling in enumerate(settings)
    }
    return {name: part for parts in (by_task, by_setting) if len(parts) > 1 for name, part in parts.items()}


def bench_decode(
    config: Config,
    *,
    checkpoint: Sequence[Path],
    static: Sequence[str],
    verifier: str,
    profile: Path | None,
    prompts: Sequence[str],
    prompts_per_task: int,
    settings: Sequence[tuple[float, float]],
    steps: int,
    until_width: float | None,
    texts: int,
    assisted: bool,
    prompt_lookup: bool,
    require_speedup: float | None,
    json: Path | None,
) -> int:
    """Measure, print the answer and the table; 1 when `require_speedup` is not met or nothing could be compared.

    Without checkpoints and `static` policies, the selectors beside the configured draft are measured. The pair is the
    one that the first checkpoint names, or the configured one where that is another than the default.
    """
    fixed_policy(config.decode.policy)
    get_verifier(verifier)
    for name, count in (("steps", steps), ("texts", texts)):
        if count < 1:
            raise UserError(f"{name} is {count}: give 1 or more.")
    if until_width is not None and not until_width > 0:
        raise UserError(f"until_width is {until_width}: give a number above 0.")
    if json:
        check_file("json", json)
    chosen = load_prompts(list(prompts), prompts_per_task)
    samplings = bench_settings(settings, config.decode)
    policies = [parse_policy(text) for text in static]
    folders = list(checkpoint) or ([] if policies else shipped_checkpoints(config.pair.draft))
    twice = next((folder for folder in folders if folders.count(folder) > 1), None)
    if twice is not None:
        raise UserError(f"checkpoint names {str(twice)!r} twice: give each folder once.")
    if not folders and not policies:
        raise UserError("checkpoint and static are empty: name a selector's checkpoint or a tree to measure.")
    checkpoints = [SelectorCheckpoint.from_pretrained(folder) for folder in folders]
    warp = shared_warp(checkpoints)
    times = LatencyProfile.load(profile) if profile else None
    named = checkpoints[0].config.models.given_to(config.pair) if checkpoints else config.pair
    pair, console = load_pair(named), Console()
    for loaded in checkpoints:
        loaded.check_pair(pair.target.fingerprint, pair.draft.fingerprint)
    times = bench_times(times, pair, checkpoints, config)
    arms = step_arms(folders, checkpoints, policies, verifier, times, config.decode.policy)
    ids = rendered(chosen, pair.tokenizer, config.generate.chat_template, config.decode.seed)
    bench = DecodeBench(
        pair, arms, text_arms(pair, assisted, prompt_lookup), ids, samplings, times, draft_warp=warp,
        max_new_tokens=config.decode.max_new_tokens, tasks=[prompt.task for prompt in chosen], seed=config.decode.seed,
        resamples=config.evaluate.bootstrap, level=config.evaluate.level,
    )  # fmt: skip
    rows = measure(bench, steps, texts, until_width, console)
    if json:
        write_json(json, rows)
    return exit_code([row for row in headlines(rows) if "steps" in row], require_speedup, console)


def measure(
    bench: DecodeBench, steps: int, texts: int, until_width: float | None, console: Console
) -> list[dict[str, Any]]:
    """Rows of a run, with progress and a running width of the widest interval; prints the answer and the table."""
    names = ", ".join(arm.name for arm in bench.measured.arms)
    console.print(f"{len(bench.prompts)} prompts, {len(bench.settings)} settings, {steps} steps of each of: {names}.")
    with Progress(console=console) as progress:
        bar = progress.add_task("decoding", total=1.0)
        for done in bench.run(steps, texts, until_width):
            words = "decoding" if bench.width is None else f"decoding, widest interval {bench.width:.3f}"
            progress.update(bar, completed=done, description=words)
    rows = bench.measured.rows() + bench.measured.parts(bench.parts)
    print_results(bench.measured, rows, console)
    return rows


def bench_times(
    given: LatencyProfile | None, pair: Pair, checkpoints: Sequence[SelectorCheckpoint], config: Config
) -> LatencyProfile:
    """The pass times of a run: `given`, with a warning where they are foreign, or this machine's.

    The latter hold the cost of a choice by the first checkpoint's selector.
    """
    if given is None:
        if not checkpoints:
            return machine_profile(pair, config.action_space.limits, config.train.inputs)
        shape = checkpoints[0].config.shape
        return machine_profile(pair, shape.action_space, shape.inputs)
    if differences := foreign_times(given, pair):
        warnings.warn(FOREIGN.format(what="the profile", differences=differences), stacklevel=2)
    return given


def bench_settings(pairs: Sequence[tuple[float, float]], settings: DecodeConfig) -> list[Sampling]:
    """The (temperature, top-p) pairs asked for, else the one of the decoding settings; top-k is always theirs."""
    chosen = pairs or [(settings.temperature, settings.top_p)]
    return [Sampling(temperature, top_p, settings.top_k) for temperature, top_p in chosen]
