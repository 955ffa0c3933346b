"""What each verb of `ddte` does. Every function imports what it needs, so that the others start fast."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selector.config import Config, DecodeConfig
from selector.errors import UserError

if TYPE_CHECKING:
    from selector.decoding.decoder import Decoder
    from selector.decoding.stats import DecodeStats


def resolve_config(arguments: Any) -> Config:
    """The parsed sections as the one frozen `Config`."""
    return Config(**{section.name: getattr(arguments, section.name) for section in fields(Config)})


def generate(arguments: Any) -> None:
    from data_gen.pipeline import generate as generate_data

    generate_data(resolve_config(arguments), arguments.out)


def profile(arguments: Any) -> None:
    from selector.engine.huggingface import load_pair
    from selector.engine.profiling import measure_profile

    refuse_existing("out", arguments.out)
    measured = measure_profile(load_pair(arguments.pair))
    measured.save(arguments.out)
    print(f"Pass times of this machine: {arguments.out}")


def train(arguments: Any) -> None:
    from selector.latency import LatencyProfile
    from selector.training.fit import train as train_selectors

    train_selectors(arguments.data, LatencyProfile.load(arguments.profile), arguments.train, arguments.out)


def evaluate(arguments: Any) -> None:
    from selector.evaluation.console import print_rows
    from selector.evaluation.report import evaluate as evaluate_selectors
    from selector.latency import LatencyProfile
    from selector.records import RootDataset
    from selector.training.run_folder import RunFolder

    run = RunFolder(arguments.run)
    checkpoints = [run.selector(verifier) for verifier in run.verifiers]
    times = LatencyProfile.load(arguments.profile) if arguments.profile else run.profile
    data = RootDataset.load(arguments.data)
    refuse_existing("out", arguments.out / "metrics.json")
    if arguments.test_data:
        test = RootDataset.load(arguments.test_data)
        rows = evaluate_selectors(checkpoints, test, times, arguments.evaluate, arguments.out, training=data)
    else:
        prompts = run.splits.test
        rows = evaluate_selectors(checkpoints, data, times, arguments.evaluate, arguments.out, test_prompts=prompts)
    print_rows(rows)
    print(f"Report: {arguments.out / 'report.html'}")


def export(arguments: Any) -> None:
    from selector.training.export import export as export_run

    for folder in export_run(arguments.run, arguments.out, arguments.metrics):
        print(f"Checkpoint: {folder}")


def decode(arguments: Any) -> None:
    from selector.distributions import Sampling

    settings: DecodeConfig = arguments.decode
    sampling = Sampling(settings.temperature, settings.top_p, settings.top_k)
    if not arguments.prompt.strip():
        raise UserError("prompt is empty: give the text to answer.")
    decoder = build_decoder(arguments)
    steps = decoder.stream(
        arguments.prompt, max_new_tokens=settings.max_new_tokens, sampling=sampling, seed=settings.seed
    )
    stats = None
    for step in steps:
        print(step.text, end="", flush=True)
        stats = step.stats
    print()
    if stats is not None:
        print_stats(stats)


def build_decoder(arguments: Any) -> Decoder:
    """The decoder of `ddte decode`: a checkpoint's selector, or a fixed expansion with its verifier."""
    from selector.checkpoint import SelectorCheckpoint
    from selector.decoding.decoder import Decoder
    from selector.engine.huggingface import load_pair
    from selector.latency import LatencyProfile
    from selector.trees.expansion import Expansion

    checkpoint = SelectorCheckpoint.load(arguments.checkpoint)
    policy = arguments.decode.policy
    fixed = None if policy in ("auto", "policy", "regressor") else Expansion.parse(policy)
    times = LatencyProfile.load(arguments.profile) if arguments.profile else None
    pair = load_pair(arguments.pair)
    if fixed is not None:
        return Decoder(pair, checkpoint.config.verifier, fixed, checkpoint.config.draft_warp)
    return Decoder.with_selector(pair, checkpoint, times, policy)


def print_stats(stats: DecodeStats) -> None:
    """Speed, block efficiency, chosen actions and the time split, on standard error."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Decoding", title_justify="left", show_header=False)
    table.add_row("tokens", f"{stats.tokens} in {stats.steps} steps")
    table.add_row("tokens per second", f"{stats.tokens_per_second:.1f}")
    table.add_row("block efficiency", f"{stats.block_efficiency:.2f} tokens a step")
    actions = [f"{expansion} {count / stats.steps:.0%}" for expansion, count in stats.actions.most_common(5)]
    table.add_row("trees (K, L1, L2)", ", ".join(actions))
    split = [f"{name} {seconds / stats.total_seconds:.0%}" for name, seconds in stats.seconds.items()]
    table.add_row("time", ", ".join(split))
    Console(stderr=True).print(table)


def bench(arguments: Any) -> int:
    from selector.bench import bench_command

    return bench_command(arguments, resolve_config(arguments))


def verify(arguments: Any) -> int:
    from selector.trees.cases import check_cases

    failed = 0
    for result in check_cases(arguments.cases):
        failed += not result.ok
        verdict = "ok" if result.ok else "MISS"
        print(f"{verdict:4}  {result.case:32}  {result.algorithm:12}  largest difference {result.difference:.2e}")
    print(f"{failed} misses", file=sys.stderr)
    return 1 if failed else 0


def distill(arguments: Any) -> None:
    from data_gen.distillation.pipeline import distill as distill_draft

    work = arguments.work or arguments.out.with_name(arguments.out.name + ".work")
    distill_draft(resolve_config(arguments), arguments.out, work)


def run(arguments: Any) -> None:
    from selector.run import run_chain

    run_chain(resolve_config(arguments), arguments.out)


def refuse_existing(field: str, path: Path) -> None:
    """Results are never overwritten."""
    if path.exists():
        raise UserError(f"{field} is {str(path)!r}, which exists already: give another place, or remove it.")
