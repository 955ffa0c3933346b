"""Throughput of several ways to decode the same prompts: arms in turn, intervals over prompts, failures named."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from selector.decoding.decoder import Decoder
from selector.decoding.stats import DecodeStats
from selector.distributions import Sampling
from selector.engine.huggingface import Pair
from selector.engine.reference_generate import assistant, transformers_generate
from selector.statistics import Interval, percentile_interval, prompt_sums, resample_counts, resampled_rates

PLAIN, ASSISTED = "plain", "assisted"
WARM_UP_TOKENS = 8
Run = Callable[[list[int], int, Sampling, int], tuple[list[int], DecodeStats | None]]


@dataclass
class Arm:
    """One way to decode, and what it did: tokens and seconds by `(prompt, setting)`."""

    name: str
    verifier: str
    run: Run
    tokens: dict[tuple[int, int], int] = field(default_factory=dict)
    seconds: dict[tuple[int, int], float] = field(default_factory=dict)
    texts: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    stats: DecodeStats = field(default_factory=DecodeStats)
    failures: list[str] = field(default_factory=list)


def bench_decode(
    pair: Pair,
    decoders: Mapping[str, Decoder],
    prompts: Sequence[Sequence[int]],
    settings: Sequence[Sampling],
    max_new_tokens: int = 128,
    *,
    against: Mapping[str, str] | None = None,
    assisted: bool = True,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
    progress: Callable[[float], None] | None = None,
) -> list[dict[str, Any]]:
    """Decode every prompt at every setting with every arm, and compare.

    Arms are transformers' plain `generate`, its assisted generation with the same draft (unless `assisted` is
    false), and `decoders` by name. They take turns at each prompt, in an order that rotates, after one short
    warm-up each. An arm that raises is counted as a failure with the error's text, and goes on; its rates, and
    plain's beside them, count the runs that it finished. `against` names, for some decoders, another one that they
    are compared with as well.

    Returns one row an arm: `arm`, `verifier`, `tokens_per_second`, `ratio_to_plain` with a paired bootstrap
    interval over prompts (`low`, `high`), `block_efficiency`, `overhead_share`, `failures`, `errors`,
    `different_texts` (greedy texts that are not plain's, of any length), `seconds` by section, `actions`, and where
    there is a comparison `against`, with `ratio_to_static`, `static_low`, `static_high`.
    """
    arms = [_plain(pair)] + ([_assisted(pair)] if assisted else [])
    arms += [_decoder_arm(name, decoder) for name, decoder in decoders.items()]
    for arm in arms:
        _attempt(arm, list(prompts[0]), WARM_UP_TOKENS, settings[0], seed, pair.target.device)
        arm.failures.clear()
        arm.stats = DecodeStats()
    items = [(prompt, setting) for prompt in range(len(prompts)) for setting in range(len(settings))]
    for done, key in enumerate(items):
        for arm in arms[done % len(arms) :] + arms[: done % len(arms)]:
            outcome = _attempt(
                arm, list(prompts[key[0]]), max_new_tokens, settings[key[1]], seed + key[0], pair.target.device
            )
            if outcome is not None:
                arm.texts[key], arm.seconds[key] = outcome
                arm.tokens[key] = len(outcome[0])
        if progress is not None:
            progress((done + 1) / len(items))
    greedy = {index for index, sampling in enumerate(settings) if sampling.temperature == 0}
    named = {arm.name: arm for arm in arms}
    rows = []
    for arm in arms:
        row = _row(arm, arms[0], greedy, resamples, level, seed)
        other = named.get((against or {}).get(arm.name, ""))
        if other is not None:
            ratio = _ratio(arm, other, resamples, level, seed)
            row |= {"against": other.name} | dict(
                zip(("ratio_to_static", "static_low", "static_high"), ratio, strict=True)
            )
        rows.append(row)
    return rows


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """One sentence: whether speculation pays here."""
    others = [row for row in rows if row["arm"] != PLAIN and row["ratio_to_plain"] is not None]
    if not others:
        return "No arm beside plain decoding finished."
    best = max(others, key=lambda row: float(row["ratio_to_plain"]))
    interval = f"{best['ratio_to_plain']:.2f} times plain decoding ({best['low']:.2f} to {best['high']:.2f})"
    if best["ratio_to_plain"] <= 1:
        return f"Speculation is slower than plain decoding here: the best arm, {best['arm']}, runs at {interval}."
    if best["low"] <= 1:
        return f"No arm is surely faster than plain decoding here: the best, {best['arm']}, runs at {interval}."
    return f"The fastest arm is {best['arm']}: {interval}."


def _plain(pair: Pair) -> Arm:
    def run(prompt: list[int], count: int, sampling: Sampling, seed: int) -> tuple[list[int], None]:
        return transformers_generate(pair.target, prompt, count, sampling, seed, pair.end_ids), None

    return Arm(PLAIN, "", run)


def _assisted(pair: Pair) -> Arm:
    helper = assistant(pair.draft)

    def run(prompt: list[int], count: int, sampling: Sampling, seed: int) -> tuple[list[int], None]:
        return transformers_generate(pair.target, prompt, count, sampling, seed, pair.end_ids, helper), None

    return Arm(ASSISTED, "", run)


def _decoder_arm(name: str, decoder: Decoder) -> Arm:
    def run(prompt: list[int], count: int, sampling: Sampling, seed: int) -> tuple[list[int], DecodeStats]:
        generation = decoder.generate(prompt, count, sampling, seed)
        return generation.tokens, generation.stats

    return Arm(name, decoder.verifier.name, run)


def _attempt(
    arm: Arm, prompt: list[int], count: int, sampling: Sampling, seed: int, device: torch.device
) -> tuple[list[int], float] | None:
    """Tokens and seconds of one run; None when it raised."""
    start = _now(device)
    try:
        tokens, stats = arm.run(prompt, count, sampling, seed)
    except Exception as error:
        arm.failures.append(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")
        return None
    seconds = _now(device) - start
    if stats is not None:
        arm.stats.add(stats)
    return tokens, seconds


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _row(arm: Arm, plain: Arm, greedy: set[int], resamples: int, level: float, seed: int) -> dict[str, Any]:
    common = sorted(arm.tokens.keys() & plain.tokens.keys())
    speculative = arm.stats.steps > 0
    ratio, low, high = _ratio(arm, plain, resamples, level, seed)
    return {
        "arm": arm.name,
        "verifier": arm.verifier,
        "tokens_per_second": _rate(arm, list(arm.tokens)),
        "ratio_to_plain": ratio,
        "low": low,
        "high": high,
        "block_efficiency": arm.stats.block_efficiency if speculative else None,
        "overhead_share": arm.stats.overhead_share if speculative else None,
        "failures": len(arm.failures),
        "errors": sorted(set(arm.failures)),
        "different_texts": sum(arm.texts[key] != plain.texts[key] for key in common if key[1] in greedy),
        "seconds": dict(arm.stats.seconds) if speculative else None,
        "actions": arm.stats.to_dict()["actions"] if speculative else None,
    }


def _ratio(arm: Arm, other: Arm, resamples: int, level: float, seed: int) -> Interval:
    """Rate over the other's rate, paired by prompt with all its settings, on the runs that both finished."""
    common = sorted(arm.tokens.keys() & other.tokens.keys())
    own_rate, other_rate = _rate(arm, common), _rate(other, common)
    if own_rate is None or other_rate is None:
        return Interval(None, None, None)
    names, prompts = np.unique([prompt for prompt, _ in common], return_inverse=True)
    tokens, seconds = (
        np.stack([prompt_sums(np.array([table[key] for key in common], float), prompts, len(names))
                  for table in tables], 1)
        for tables in ((arm.tokens, other.tokens), (arm.seconds, other.seconds))
    )  # fmt: skip
    draws = resampled_rates(tokens, seconds, resample_counts(len(names), resamples, seed))
    return percentile_interval(own_rate / other_rate, draws[:, 0] / draws[:, 1], level)


def _rate(arm: Arm, keys: Sequence[tuple[int, int]]) -> float | None:
    seconds = sum(arm.seconds[key] for key in keys)
    return sum(arm.tokens[key] for key in keys) / seconds if seconds else None
