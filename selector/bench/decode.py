"""`ddte bench decode`: the arms of a throughput comparison from command-line arguments, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from data_gen.prompts.prompts import Prompt, load_prompts, rendered
from selector.artifacts import check_file, write_json
from selector.bench.throughput import bench_decode, verdict
from selector.config import Config, DecodeConfig
from selector.decoding.decoder import Decoder
from selector.decoding.policies import FixedPolicy, fixed_tree
from selector.distributions import Sampling
from selector.engine.huggingface import Pair, load_pair
from selector.errors import UserError
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.trees.expansion import Expansion
from selector.trees.verifiers import get_verifier


def bench_command(
    config: Config,
    folders: Sequence[Path],
    static: Sequence[str],
    verifier: str,
    profile: Path | None,
    sources: Sequence[str],
    prompts_per_task: int,
    pairs: Sequence[tuple[float, float]],
    assisted: bool = True,
    require_speedup: float | None = None,
    json: Path | None = None,
) -> int:
    """Run the arms in turn and print the table.

    `folders` hold selectors, `static` are trees that run with `verifier`, `sources` name prompts, and `pairs` are
    (temperature, top-p). Exit code 1 when no decoder finished a run, and when `require_speedup` is not met.
    """
    fixed_tree(config.decode.policy)
    get_verifier(verifier)
    if json:
        check_file("json", json)
    prompts = load_prompts(sources, prompts_per_task)
    settings = bench_settings(pairs, config.decode)
    expansions = [Expansion.parse(text) for text in static]
    twice = next((folder for folder in folders if folders.count(folder) > 1), None)
    if twice is not None:
        raise UserError(f"checkpoint names {str(twice)!r} twice: give each folder once.")
    checkpoints = [SelectorCheckpoint.load(folder) for folder in folders]
    times = LatencyProfile.load(profile) if profile else None
    if not expansions and not checkpoints:
        raise UserError("checkpoint and static are empty: name a selector's checkpoint or an expansion to measure.")
    pair = load_pair(config.pair)
    decoders, against = build_arms(pair, folders, checkpoints, expansions, verifier, times, config.decode)
    console = Console()
    rows = measure(pair, decoders, against, prompts, settings, assisted, config, console)
    console.print(bench_table(rows))
    console.print(verdict(rows))
    for row in rows:
        if row.get("ratio_to_static"):
            interval = f"{row['ratio_to_static']:.3f} [{row['static_low']:.3f}, {row['static_high']:.3f}]"
            console.print(f"{row['arm']} runs at {interval} times {row['against']}.")
    if json:
        write_json(json, rows)
    return exit_code([row for row in rows if row["arm"] in decoders], require_speedup, console)


def bench_settings(pairs: Sequence[tuple[float, float]], settings: DecodeConfig) -> list[Sampling]:
    """The (temperature, top-p) pairs asked for, else the one of the decoding settings; top-k is always theirs."""
    chosen = pairs or [(settings.temperature, settings.top_p)]
    return [Sampling(temperature, top_p, settings.top_k) for temperature, top_p in chosen]


def exit_code(rows: Sequence[dict[str, Any]], required: float | None, console: Console) -> int:
    """1 when no decoder of these rows finished a run, or the best is below `required` times plain; else 0."""
    ratios = [row["ratio_to_plain"] for row in rows if row["ratio_to_plain"] is not None]
    if not ratios:
        console.print("No decoder finished a run.")
        return 1
    if required is not None and max(ratios) < required:
        console.print(f"The best arm is {max(ratios):.2f} times plain; {required} was required.")
        return 1
    return 0


def build_arms(
    pair: Pair,
    folders: Sequence[Path],
    checkpoints: Sequence[SelectorCheckpoint],
    expansions: Sequence[Expansion],
    verifier: str,
    times: LatencyProfile | None,
    decode: DecodeConfig,
) -> tuple[dict[str, Decoder], dict[str, str]]:
    """For each checkpoint what `ddte decode` runs and its best static tree; then the expansions asked for.

    The first is named `selector`, or after the tree that `decode.policy` names or that stands in for a selector that
    did not pay. Static trees have no guard: they show what they cost. Arms of checkpoints that share a verifier carry
    their `folders` in their names. The second result names the static tree of each selector.
    """
    arms, against = {}, {}
    for name, checkpoint in zip(arm_names(folders, checkpoints), checkpoints, strict=True):
        own, static = checkpoint.config.verifier, Expansion(*checkpoint.config.best_static)
        decoder = Decoder.with_selector(pair, checkpoint, times, decode.policy, decode.guard)
        tree = decoder.policy.expansion if isinstance(decoder.policy, FixedPolicy) else None
        arm = f"{name} as decode runs it {tree}" if tree else f"{name} selector"
        arms[arm] = decoder
        arms[f"{name} static {static}"] = Decoder(pair, own, static, checkpoint.config.draft_warp)
        against[arm] = f"{name} static {static}"
    for expansion in expansions:
        arms[f"{verifier} static {expansion}"] = Decoder(pair, verifier, expansion)
    return arms, against


def arm_names(folders: Sequence[Path], checkpoints: Sequence[SelectorCheckpoint]) -> list[str]:
    """The verifier of each checkpoint, followed by its folder where another one has the same verifier."""
    verifiers = [checkpoint.config.verifier for checkpoint in checkpoints]
    return [
        f"{verifier} {folder}" if verifiers.count(verifier) > 1 else verifier
        for verifier, folder in zip(verifiers, folders, strict=True)
    ]


def measure(
    pair: Pair,
    decoders: dict[str, Decoder],
    against: dict[str, str],
    prompts: Sequence[Prompt],
    settings: Sequence[Sampling],
    assisted: bool,
    config: Config,
    console: Console,
) -> list[dict[str, Any]]:
    """Rows of `bench_decode`, with a progress bar and prompts of all tasks mixed."""
    ids = rendered(prompts, pair.tokenizer, config.generate.chat_template, config.decode.seed)
    runs = len(ids) * len(settings) * (len(decoders) + 1 + assisted)
    console.print(
        f"{len(ids)} prompts, {len(settings)} settings, {runs} runs of up to {config.decode.max_new_tokens} tokens."
    )
    with Progress(console=console) as progress:
        bar = progress.add_task("decoding", total=1.0)
        return bench_decode(
            pair, decoders, ids, settings, config.decode.max_new_tokens, against=against, assisted=assisted,
            seed=config.decode.seed, resamples=config.evaluate.bootstrap, level=config.evaluate.level,
            progress=lambda done: progress.update(bar, completed=done),
        )  # fmt: skip


def bench_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Throughput with intervals, block efficiency, and where the time goes."""
    table = Table()
    for heading in ("arm", "tokens/s", "x plain", "a step", "overhead", "failed"):
        table.add_column(heading, no_wrap=heading != "arm")  # names wrap before figures are cut
    for row in rows:
        ratio = f"{row['ratio_to_plain']:.2f} [{row['low']:.2f}, {row['high']:.2f}]" if row["ratio_to_plain"] else "-"
        speed = f"{row['tokens_per_second']:.1f}" if row["tokens_per_second"] else "-"
        efficiency = f"{row['block_efficiency']:.2f}" if row["block_efficiency"] else "-"
        overhead = f"{row['overhead_share']:.0%}" if row["overhead_share"] is not None else "-"
        table.add_row(row["arm"], speed, ratio, efficiency, overhead, str(row["failures"]))
    return table
