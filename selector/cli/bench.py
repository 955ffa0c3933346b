"""`ddte bench`: what is measured, and how fast or how well it went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from selector.cli.parser import Verb, add_verbs, resolve_config
from selector.errors import UserError


def decode_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint", type=list[Path], default=[], help="selectors to measure, with their best static trees"
    )
    parser.add_argument("--static", type=list[str], default=[], help="static trees to measure, each (K, L1, L2)")
    parser.add_argument("--verifier", type=str, default="traversal", help="verifier of the static trees")
    parser.add_argument(
        "--profile", type=Path, default=None, help="this machine's pass times (default: the checkpoints')"
    )
    _prompt_flags(parser)
    parser.add_argument(
        "--settings",
        type=list[tuple[float, float]],
        default=[],
        help="(temperature, top-p) pairs (default: --decode's)",
    )
    parser.add_argument("--assisted", type=bool, default=True, help="measure transformers' assisted generation as well")
    parser.add_argument(
        "--require-speedup", type=float, default=None, help="exit 1 when the best arm is slower than this"
    )
    _json_flag(parser)


def bench_decode(arguments: Any) -> int:
    """Decoding throughput beside plain and assisted decoding."""
    from selector.bench.decode import bench_command

    return bench_command(arguments, resolve_config(arguments))


def step_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--static", type=str, default="(2, 0, 2)", help="the tree of every step, (K, L1, L2)")
    parser.add_argument("--verifier", type=str, default="rbv", help="its verifier")
    _prompt_flags(parser)
    _json_flag(parser)


def bench_step(arguments: Any) -> None:
    """Where the time of a decoding step goes."""
    from selector.bench.step_time import bench_step as bench_steps

    bench_steps(arguments, resolve_config(arguments))


def generate_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--units", type=int, default=4, help="trajectories to label, the first of the plan")
    _json_flag(parser)


def bench_generate(arguments: Any) -> None:
    """Roots a minute beside one drawing an action."""
    from selector.bench.generation import bench_generate as bench_data

    bench_data(resolve_config(arguments), arguments.units, arguments.json)


def verification_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--nodes", type=list[int], default=[8, 16, 33, 65], help="sizes of the tree")
    parser.add_argument(
        "--vocabularies", type=list[int], default=[32_000, 49_152, 152_064, 262_144], help="sizes of the vocabulary"
    )
    parser.add_argument("--verifiers", type=list[str], default=[], help="names (default: all)")
    parser.add_argument("--seconds", type=float, default=8.0, help="time for each pair of sizes")
    _json_flag(parser)


def bench_verification(arguments: Any) -> int:
    """Time of each verifier beside one read of the laws."""
    from selector.bench.verification import bench_verification as bench_verifiers

    return bench_verifiers(arguments)


def efficiency_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="a data set made by `ddte generate`")
    parser.add_argument(
        "--actions",
        type=list[str],
        default=["(4, 0, 4)", "(4, 1, 3)", "(4, 2, 4)", "(4, 4, 4)"],
        help="trees to compare verifiers at, each (K, L1, L2)",
    )
    _json_flag(parser)


def bench_efficiency(arguments: Any) -> None:
    """Print block efficiencies of a data set's verifiers as markdown."""
    from selector.artifacts import check_file, write_json
    from selector.bench.block_efficiency import markdown, mean_efficiencies
    from selector.dataset.records import RootDataset
    from selector.evaluation.evaluate import check_config
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
        write_json(arguments.json, [mean.to_dict() for mean in means])


def _prompt_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--prompts", type=list[str], default=["builtin"], help="`builtin` or JSONL files")
    parser.add_argument("--prompts-per-task", type=int, default=2, help="prompts of each task")


def _json_flag(parser: ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, default=None, help="write the rows here as well")


BENCHES = {
    "decode": Verb(
        "Throughput against plain and assisted decoding, interleaved.",
        decode_flags,
        bench_decode,
        {"pair", "decode"},
    ),
    "step": Verb(
        "Where a decoding step's time goes, with passes as transformers runs them and as ddte does.",
        step_flags,
        bench_step,
        {"pair", "decode"},
    ),
    "generate": Verb(
        "Roots a minute, where the time goes, and the cost of the same labels by one drawing an action.",
        generate_flags,
        bench_generate,
        {"pair", "action_space", "generate"},
    ),
    "verification": Verb(
        "Time of a step's verification beside one read of its laws.",
        verification_flags,
        bench_verification,
        set(),
    ),
    "efficiency": Verb(
        "Tokens a step of every verifier on a data set's laws, as markdown.",
        efficiency_flags,
        bench_efficiency,
        {"evaluate"},
    ),
}


def bench_flags(parser: ArgumentParser) -> None:
    add_verbs(parser, BENCHES, "what", "ddte bench")


def bench(arguments: Any) -> int | None:
    """Run one benchmark; returns the exit code."""
    return BENCHES[arguments.what].run(arguments[arguments.what])
