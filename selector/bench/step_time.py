"""`ddte bench step`: where a decoding step's time goes, with passes as transformers runs them and as ddte does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from data_gen.prompts.prompts import load_prompts, rendered
from selector.artifacts.claims import check_file
from selector.artifacts.writing import write_json
from selector.config import Config
from selector.decoding.decoder import Decoder
from selector.decoding.stats import DecodeStats
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.huggingface import Pair, load_pair
from selector.statistics import Interval, percentile_interval, resample_counts
from selector.trees.expansion import Expansion

STEP_SECTIONS = ("draft", "target", "verify", "cache", "selector", "other")
PRODUCTS = ("aten::mm", "aten::addmm", "mkldnn::_linear_pointwise")
WARM_UP_TOKENS, PROFILED_TOKENS = 8, 24


def bench_step(
    config: Config, static: str, verifier: str, sources: Sequence[str], prompts_per_task: int, json: Path | None = None
) -> list[dict[str, Any]]:
    """Decode prompts with both arms in turn, print the table, return its rows: one a section, and the whole step.

    `static` is the tree of every step, `verifier` its verifier; `sources` name prompts.
    """
    sampling, settings = Sampling.of(config.decode), config.decode
    if json:
        check_file("json", json)
    expansion = Expansion.parse(static)
    prompts = load_prompts(sources, prompts_per_task)
    pair, console = load_pair(config.pair), Console()
    ids = rendered(prompts, pair.tokenizer, config.generate.chat_template, settings.seed)
    decoders = [Decoder(arm, verifier, expansion) for arm in (_as_loaded(pair), pair)]
    milliseconds = measure(decoders, ids, sampling, settings.max_new_tokens, settings.seed, console)
    rows = step_rows(milliseconds, config.evaluate.bootstrap, config.evaluate.level)
    console.print(step_table(rows, f"{verifier} static {expansion}, {pair.dtype}".replace("torch.", "")))
    for name, decoder in zip(("transformers", "ddte"), decoders, strict=True):
        share = product_share(decoder, ids[0], sampling)
        console.print(f"Linear layers are {share:.0%} of the computing time of decoding with passes of {name}.")
    if json:
        write_json(json, rows)
    return rows


def _as_loaded(pair: Pair) -> Pair:
    """The same two models, run by their own modules."""
    target, draft = pair.target, pair.draft
    return replace(
        pair,
        target=HuggingFaceModel(target.model, None, target.tokenizer, pack=False),
        draft=type(draft)(draft.model, draft.support, draft.tokenizer, draft.vocab_size, pack=False),
    )


def measure(
    decoders: Sequence[Decoder],
    prompts: Sequence[list[int]],
    sampling: Sampling,
    max_new_tokens: int,
    seed: int,
    console: Console,
) -> np.ndarray:
    """Milliseconds a step, `[arms, prompts, sections]`; the arm that goes first alternates."""
    for decoder in decoders:
        decoder.generate(prompts[0], WARM_UP_TOKENS, sampling, seed)
    spent = np.empty((len(decoders), len(prompts), len(STEP_SECTIONS)))
    for number in track(range(len(prompts)), "decoding", console=console, transient=True):
        for arm in [(number + turn) % len(decoders) for turn in range(len(decoders))]:
            stats = decoders[arm].generate(prompts[number], max_new_tokens, sampling, seed).stats
            spent[arm, number] = _step_milliseconds(stats)
    return spent


def _step_milliseconds(stats: DecodeStats) -> list[float]:
    return [1e3 * stats.seconds[name] / stats.steps for name in STEP_SECTIONS]


def step_rows(spent: np.ndarray, resamples: int, level: float) -> list[dict[str, Any]]:
    """A row a section, and `step`: mean milliseconds of both arms, and their ratio with its paired interval.

    `spent [2, prompts, sections]`; prompts are resampled.
    """
    spent = np.concatenate([spent, spent.sum(2, keepdims=True)], 2)
    counts = resample_counts(spent.shape[1], resamples, 0)
    rows = []
    for place, section in enumerate((*STEP_SECTIONS, "step")):
        before, after = spent[:, :, place]
        if after.sum() == 0:
            continue  # a static tree has no selector
        ratio = percentile_interval(before.sum() / after.sum(), (counts @ before) / (counts @ after), level)
        rows.append({
            "section": section, "transformers_ms": before.mean(), "ddte_ms": after.mean(),
            "ratio": ratio.value, "low": ratio.low, "high": ratio.high,
        })  # fmt: skip
    return rows


def product_share(decoder: Decoder, prompt: list[int], sampling: Sampling) -> float:
    """Share of matrix products of linear layers in the computing time of all operations, prompt included."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded, torch.inference_mode():
        decoder.generate(prompt, PROFILED_TOKENS, sampling)
    events = recorded.key_averages()
    products = sum(event.self_cpu_time_total for event in events if event.key in PRODUCTS)
    return float(products / sum(event.self_cpu_time_total for event in events))


def step_table(rows: Sequence[dict[str, Any]], title: str) -> Table:
    """Milliseconds of a step by section."""
    table = Table(title=title)
    for heading in ("section", "transformers, ms", "ddte, ms", "ratio"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        ratio = f"{Interval(row['ratio'], row['low'], row['high']):.2f}"
        table.add_row(row["section"], f"{row['transformers_ms']:.2f}", f"{row['ddte_ms']:.2f}", ratio)
    return table
