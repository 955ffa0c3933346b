"""What each verb of `ddte` does. Every function imports what it needs, so that the others start fast."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selector.config import Config, DecodeConfig
from selector.errors import UserError

if TYPE_CHECKING:
    from selector.decoding.decoder import Decoder
    from selector.decoding.stats import DecodeStats
    from selector.trees.cases import CaseResult
    from selector.trees.expansion import Expansion

HEADS = ("auto", "policy", "regressor")


def resolve_config(arguments: Any) -> Config:
    """The parsed sections as the one frozen `Config`."""
    return Config(**{section.name: getattr(arguments, section.name) for section in fields(Config)})


def generate(arguments: Any) -> None:
    """Make or finish a data set in `out`, merge several into it, or check one."""
    if arguments.check:
        from data_gen.checking import check_data_set

        check_data_set(arguments.check)
        return
    if arguments.out is None:
        raise UserError("out is left out: give the data set's folder.")
    if arguments.merge:
        from data_gen.merging import merge

        merge(arguments.merge, arguments.out)
        return
    from data_gen.pipeline import generate as generate_data

    generate_data(resolve_config(arguments), arguments.out, engine=arguments.engine, workers=arguments.workers)


def profile(arguments: Any) -> None:
    """Measure this machine's pass times and write them to the file `out`."""
    from selector.engine.huggingface import load_pair
    from selector.engine.profiling import measure_profile
    from selector.provenance import check_place

    refuse_existing("out", arguments.out)
    check_place("out", arguments.out)
    measured = measure_profile(load_pair(arguments.pair))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    measured.save(arguments.out)
    print(f"Pass times of this machine: {arguments.out}")
    if disturbance := measured.disturbance():
        print(f"Warning: {disturbance}", file=sys.stderr)


def train(arguments: Any) -> None:
    """Train selectors on `data` into the run folder `out`."""
    from selector.latency import LatencyProfile
    from selector.training.fit import train as train_selectors

    train_selectors(arguments.data, LatencyProfile.load(arguments.profile), arguments.train, arguments.out)


def evaluate(arguments: Any) -> None:
    """Score selectors and write metrics.json and report.html into the new folder `out`; several runs are seeds."""
    from selector.checkpoint import refuse_occupied
    from selector.evaluation.console import print_rows
    from selector.evaluation.report import evaluate as evaluate_selectors
    from selector.latency import LatencyProfile
    from selector.provenance import check_place
    from selector.records import RootDataset
    from selector.training.run_folder import RunFolder

    refuse_occupied(arguments.out)
    check_place("out", arguments.out)
    folders = arguments.run if isinstance(arguments.run, list) else [arguments.run]
    if not folders:
        raise UserError("run is []: name one run folder or more.")
    runs = [RunFolder(path) for path in folders]
    run = runs[0]
    for other in runs[1:]:
        if other.splits.test != run.splits.test:
            raise UserError(f"run '{other.path}' has other test prompts than '{run.path}': train with one split_seed.")
    checkpoints = [run.selector(verifier) for run in runs for verifier in run.verifiers]
    times = LatencyProfile.load(arguments.profile) if arguments.profile else run.profile
    data = RootDataset.load(arguments.data)
    if arguments.test_data:
        test = RootDataset.load(arguments.test_data)
        rows = evaluate_selectors(checkpoints, test, times, arguments.evaluate, arguments.out, training=data)
    else:
        prompts = run.splits.test
        rows = evaluate_selectors(checkpoints, data, times, arguments.evaluate, arguments.out, test_prompts=prompts)
    print_rows(rows)
    print(f"Report: {arguments.out / 'report.html'}")


def export(arguments: Any) -> None:
    """Write a run's selectors as checkpoint folders below `out`."""
    from selector.training.export import export as export_run

    for folder in export_run(arguments.run, arguments.out, arguments.metrics):
        print(f"Checkpoint: {folder}")


def decode(arguments: Any) -> int:
    """Stream the answer to `prompt` to standard output, statistics to standard error; or answer all of `prompts`."""
    from selector.decoding.checks import check_decode

    settings: DecodeConfig = arguments.decode
    sampling = check_decode(settings)
    if (arguments.prompt is None) == (arguments.prompts is None):
        raise UserError("prompt and prompts: give one of the two, a text or a file of prompts.")
    if arguments.prompts is not None:
        return decode_prompts(arguments)
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
    return 0


def decode_prompts(arguments: Any) -> int:
    """Answer all `prompts` into the JSONL file `out`; exit code 1 when one of them failed."""
    from selector.decode import Answers, decode_all, decode_settings, read_prompts
    from selector.decoding.checks import check_decode
    from selector.provenance import check_file

    if arguments.out is None:
        raise UserError("out is left out: give the JSONL file for the answers to prompts.")
    check_file("out", arguments.out)
    prompts = read_prompts(arguments.prompts)
    answers = Answers(arguments.out, decode_settings(arguments))
    answers.left(prompts)
    decoder = build_decoder(arguments)
    return decode_all(decoder, prompts, answers, arguments.decode, check_decode(arguments.decode))


def build_decoder(arguments: Any) -> Decoder:
    """The decoder of `ddte decode`: a checkpoint's selector, or a fixed expansion with its verifier."""
    from selector.checkpoint import SelectorCheckpoint
    from selector.decoding.decoder import Decoder
    from selector.decoding.guard import Guard
    from selector.engine.huggingface import load_pair
    from selector.latency import LatencyProfile

    policy = arguments.decode.policy
    fixed = fixed_tree(policy)
    checkpoint = SelectorCheckpoint.load(arguments.checkpoint)
    times = LatencyProfile.load(arguments.profile) if arguments.profile else None
    pair = load_pair(arguments.pair)
    guarded = arguments.decode.guard
    if fixed is not None:
        guard = Guard(times or checkpoint.profile) if guarded else None
        return Decoder(pair, checkpoint.config.verifier, fixed, checkpoint.config.draft_warp, guard)
    return Decoder.with_selector(pair, checkpoint, times, policy, guarded)


def fixed_tree(policy: str) -> Expansion | None:
    """The tree that `decode.policy` names; None where it names a head of the selector."""
    from selector.trees.expansion import Expansion

    if policy in HEADS:
        return None
    try:
        return Expansion.parse(policy)
    except UserError:
        message = f"decode.policy is {policy!r}: choose {', '.join(HEADS)} or a tree (K, L1, L2)."
        raise UserError(message) from None


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
    if stats.guarded:
        table.add_row("guard", f"{stats.guarded / stats.steps:.0%} of the steps held back: plain decoding was cheaper")
    split = [f"{name} {share:.0%}" for name, share in stats.shares.items()]
    table.add_row("time", ", ".join(split))
    Console(stderr=True).print(table)


def bench(arguments: Any) -> int:
    """Run one benchmark; returns the exit code."""
    return int(_BENCHES[arguments.what](arguments[arguments.what]) or 0)


def bench_decode(arguments: Any) -> int:
    """Decoding throughput beside plain and assisted decoding."""
    from selector.bench import bench_command

    return bench_command(arguments, resolve_config(arguments))


def bench_generate(arguments: Any) -> None:
    """Roots a minute beside one drawing an action."""
    from data_gen.bench import bench_generate as bench_data

    bench_data(resolve_config(arguments), arguments.units, arguments.json)


def bench_verification(arguments: Any) -> int:
    """Time of each verifier beside one read of the laws."""
    from selector.verification_bench import bench_verification as bench_verifiers

    return bench_verifiers(arguments)


def bench_efficiency(arguments: Any) -> None:
    """Print block efficiencies of a data set's verifiers as markdown."""
    from selector.evaluation.block_efficiency import markdown, mean_efficiencies
    from selector.evaluation.report import check_config
    from selector.provenance import check_file, write_json
    from selector.records import RootDataset
    from selector.trees.expansion import Expansion

    check_config(arguments.evaluate)
    if not arguments.actions:
        raise UserError("actions is empty: give trees, each (K, L1, L2).")
    actions = [Expansion.parse(text) for text in arguments.actions]
    if arguments.json:
        check_file("json", arguments.json)
    dataset = RootDataset.load(arguments.data)
    means = mean_efficiencies(dataset, actions, arguments.evaluate)
    print(markdown(means, dataset, arguments.evaluate))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(arguments.json, [mean.to_dict() for mean in means])


_BENCHES = {
    "decode": bench_decode,
    "generate": bench_generate,
    "verification": bench_verification,
    "efficiency": bench_efficiency,
}


def verify(arguments: Any) -> int:
    """Check the pair of `config`, or the worked cases of a file; exit code 1 if one check fails."""
    if (arguments.cases is None) == (not arguments.config):
        given = "both" if arguments.config else "neither"
        raise UserError(f"cases and config are {given} given: give one, `--cases FILE` or `--config FILE`.")
    return verify_cases(arguments.cases) if arguments.cases else verify_config(arguments)


def verify_cases(cases: Path) -> int:
    """The worked cases of a file."""
    from selector.trees.cases import check_cases

    failed = 0
    for result in check_cases(cases):
        failed += not result.ok
        verdict = "ok" if result.ok else "MISS"
        print(
            f"{verdict:4}  {result.case:32}  {result.algorithm:18}  largest difference {result.difference:.2e}"
            f"  computed {shown(result, result.computed)}  expected {shown(result, result.expected)}"
        )
    print(f"{failed} misses", file=sys.stderr)
    return 1 if failed else 0


def verify_config(arguments: Any) -> int:
    """Losslessness of decoding with the pair, on this machine."""
    from rich.console import Console

    from selector.engine.huggingface import load_pair
    from selector.losslessness.table import print_findings
    from selector.losslessness.verify import PROMPTS, check_settings, verify_pair

    check_settings(arguments.verifier, arguments.tokens, arguments.texts)
    with Console(stderr=True).status("loading the models") as status:
        pair = load_pair(arguments.pair)
        prompts = [pair.encode(prompt) for prompt in PROMPTS]
        findings = verify_pair(
            pair,
            prompts,
            verifier=arguments.verifier,
            tokens=arguments.tokens,
            texts=arguments.texts,
            say=status.update,
        )
    print_findings(findings)
    return 0 if all(finding.passed for finding in findings) else 1


def shown(result: CaseResult, numbers: Sequence[float]) -> str:
    """Numbers of a case for one line: all of them, or of many the one that is furthest off."""
    if len(numbers) > 6:
        off = [abs(own - other) for own, other in zip(result.computed, result.expected, strict=True)]
        place = off.index(max(off))
        return f"{numbers[place]:.9f} (number {place + 1} of {len(numbers)})"
    return " ".join(f"{number:.9f}" for number in numbers)


def distill(arguments: Any) -> None:
    """Make an early-exit draft in `out`; text and training state go to `work`."""
    from data_gen.distillation.pipeline import distill as distill_draft

    work = arguments.work or arguments.out.with_name(arguments.out.name + ".work")
    distill_draft(resolve_config(arguments), arguments.out, work)


def run(arguments: Any) -> None:
    """Run all stages into `out`."""
    from selector.run import run_chain

    run_chain(resolve_config(arguments), arguments.out)


def refuse_existing(field: str, path: Path) -> None:
    """Results are never overwritten."""
    if path.exists():
        raise UserError(f"{field} is {str(path)!r}, which exists already: give another place, or remove it.")
