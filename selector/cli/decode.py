"""`ddte decode`: one prompt to the terminal, or many to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser

from selector.config import DecodeConfig
from selector.errors import UserError

if TYPE_CHECKING:
    from selector.decoding.decoder import Decoder
    from selector.decoding.stats import DecodeStats
    from selector.trees.expansion import Expansion

HEADS = ("auto", "policy", "regressor")


def decode_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, required=True, help="a checkpoint folder of `ddte export`")
    parser.add_argument("--prompt", type=str, default=None, help="the user's message")
    parser.add_argument("--prompts", type=str, default=None, help="JSONL file, or `-` for lines of stdin; needs --out")
    parser.add_argument("--out", type=Path, default=None, help="JSONL file of answers; an interrupted one goes on")
    parser.add_argument(
        "--profile", type=Path, default=None, help="this machine's pass times (default: the checkpoint's)"
    )


def decode(arguments: Any) -> int:
    """Stream the answer to `prompt` to standard output, statistics to standard error; or answer all of `prompts`."""
    from selector.decoding.checks import check_decode

    settings: DecodeConfig = arguments.decode
    sampling = check_decode(settings)
    if (arguments.prompt is None) == (arguments.prompts is None):
        raise UserError("prompt and prompts: give one of the two, a text or a file of prompts.")
    if arguments.prompts is not None:
        return decode_prompts(arguments)
    if arguments.out is not None:
        raise UserError(f"out is {str(arguments.out)!r}: it is for --prompts; the answer to one prompt is printed.")
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
    from selector.artifacts import check_file
    from selector.cli.batch_decode import Answers, decode_all, decode_settings, read_prompts
    from selector.decoding.checks import check_decode

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
    from selector.decoding.decoder import Decoder
    from selector.decoding.guard import Guard
    from selector.engine.huggingface import load_pair
    from selector.latency import LatencyProfile
    from selector.network.checkpoint import SelectorCheckpoint

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
