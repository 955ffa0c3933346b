"""The decoder of `ddte decode`, its answer to one prompt on the terminal, and the statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from selector.config import DecodeConfig, PairConfig
from selector.decoding.decoder import Decoder
from selector.decoding.stats import DecodeStats
from selector.distributions import Sampling
from selector.engine.huggingface import load_pair
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint


def build_decoder(
    checkpoint: Path, profile: Literal["machine", "checkpoint"] | Path, pair: PairConfig, decode: DecodeConfig
) -> Decoder:
    """The decoder of `ddte decode`: a checkpoint's selector, or a policy without one and its verifier."""
    console = Console(stderr=True)
    selector = SelectorCheckpoint.from_pretrained(checkpoint)
    times = LatencyProfile.load(profile) if isinstance(profile, Path) else profile
    console.print("Loading the models ...")
    decoder = Decoder.with_selector(
        load_pair(selector.config.models.given_to(pair)), selector, times, decode.policy, decode.guard
    )
    if decode.policy == "auto" and not selector.beats_static:
        console.print(f"Decoding with {decoder.policy}.", highlight=False)
    return decoder


def stream(decoder: Decoder, prompt: str, decode: DecodeConfig) -> None:
    """Print the text as it grows, and then the statistics."""
    sampling, stats = Sampling.of(decode), None
    for step in decoder.stream(prompt, max_new_tokens=decode.max_new_tokens, sampling=sampling, seed=decode.seed):
        print(step.text, end="", flush=True)
        stats = step.stats
    print()
    if stats is not None:
        print_stats(stats)


def print_stats(stats: DecodeStats) -> None:
    """Speed, block efficiency, policy, chosen actions and the time split, on standard error."""
    table = Table(title="Decoding", title_justify="left", show_header=False)
    table.add_row("tokens", f"{stats.tokens} in {stats.steps} steps")
    table.add_row("tokens per second", f"{stats.tokens_per_second:.1f}")
    table.add_row("block efficiency", f"{stats.block_efficiency:.2f} tokens a step")
    sources = [f"{name} {count / sum(stats.sources.values()):.0%}" for name, count in stats.sources.items() if count]
    table.add_row("tokens from", ", ".join(sources))
    table.add_row("policy", stats.policy)
    actions = [f"{action} {count / stats.steps:.0%}" for action, count in stats.actions.most_common(5)]
    table.add_row("trees (K, L1, L2)", ", ".join(actions))
    if stats.guarded:
        table.add_row("guard", f"{stats.guarded / stats.steps:.0%} of the steps held back: plain decoding was cheaper")
    if stats.undrafted:
        table.add_row("draft", f"no distribution at {stats.undrafted} nodes (NaN or infinity): not drafted from")
    split = [f"{name} {share:.0%}" for name, share in stats.shares.items()]
    table.add_row("time", ", ".join(split))
    Console(stderr=True).print(table)
