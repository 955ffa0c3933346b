"""The command `ddte`: one parser, one configuration language, a function a verb.

Nothing heavy is imported before a verb runs, so that help is instant.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from jsonargparse import ArgumentParser, Namespace

from selector.config import (
    ActionSpaceConfig,
    DecodeConfig,
    DistillConfig,
    EvaluateConfig,
    GenerateConfig,
    PairConfig,
    TrainConfig,
)
from selector.errors import UserError

SECTIONS: dict[str, type] = {
    "pair": PairConfig,
    "action_space": ActionSpaceConfig,
    "generate": GenerateConfig,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "distill": DistillConfig,
    "decode": DecodeConfig,
}
VERBS = {
    "generate": "Make training data: run a pair of models over prompts, record features and labels of roots.",
    "train": "Train selectors on a data set (Lightning), one a verifier.",
    "evaluate": "Evaluate selectors on held-out prompts: metrics.json and an HTML report.",
    "export": "Write the selectors of a run as checkpoint folders for decoding.",
    "decode": "Decode one prompt with a checkpoint, streaming text and ending with statistics; or many, to a file.",
    "profile": "Measure this machine's pass times.",
    "bench": "Measure: decoding and verification on this machine, block efficiency on a data set.",
    "verify": "Check that decoding with a pair is lossless here, or verification algorithms against worked cases.",
    "distill": "Make an early-exit draft for a target.",
    "run": "The whole chain from one configuration; each stage skips what is already there.",
}

RESUMED = {"generate", "train", "distill", "run"}  # an interrupted one goes on with the same command
PIPE_CLOSED = 141  # 128 + SIGPIPE, as of other programs

# The sections that a verb's help shows. The others are read and checked as well, so that one file serves all.
SHOWN = {
    "generate": {"pair", "action_space", "generate"},
    "train": {"train"},
    "evaluate": {"evaluate"},
    "export": set(),
    "decode": {"pair", "decode"},
    "profile": {"pair"},
    "verify": {"pair"},
    "distill": {"pair", "distill"},
    "run": set(SECTIONS),
}


class _Parser(ArgumentParser):
    """Errors are one sentence; a key that does not exist is answered with the nearest one that does."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        message = re.sub(r"^Parser key ", "", " ".join(str(message).split()))
        unknown = re.search(r"(?:option '|arguments: --|key \")([\w.]+)", message)
        keys = [f"{name}.{key}" for name, section in SECTIONS.items() for key in section.__annotations__]
        near = difflib.get_close_matches(unknown[1], keys, n=1, cutoff=0.7) if unknown else []
        hint = f" Did you mean {near[0]!r}?" if near and unknown and near[0] != unknown[1] else ""
        prog = re.sub(r" \[[^]]*\]", "", self.prog)
        print(f"{prog}: {message.rstrip('.')}.{hint}", file=sys.stderr)
        raise SystemExit(2)


def build_parser() -> ArgumentParser:
    """The parser of all verbs; every verb takes the same configuration file, flags after it win."""
    parser = _Parser(
        prog="ddte", description="Dynamic delayed tree expansion for speculative decoding.", allow_abbrev=False
    )
    verbs = parser.add_subcommands(required=True, dest="verb")
    for verb, description in VERBS.items():
        sub = _Parser(description=description, usage=f"ddte {verb} [--config FILE] [flags]", allow_abbrev=False)
        verbs.add_subcommand(verb, sub, help=description)  # first, since one verb has verbs of its own
        _ARGUMENTS[verb](sub)
        if verb in SHOWN:
            _add_sections(sub, SHOWN[verb])
    return parser


def _add_sections(parser: ArgumentParser, shown: Iterable[str]) -> None:
    parser.add_argument("--config", action="config", help="a pair's YAML file, as configs/smollm2-135m.yaml")
    for name, section in SECTIONS.items():
        before = len(parser._actions)
        parser.add_class_arguments(section, name)
        for action in parser._actions[before:]:
            if name not in shown:
                action.help = argparse.SUPPRESS


def _generate(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=None, help="the data set's folder; an interrupted one goes on")
    parser.add_argument("--engine", choices=["local", "ray"], default="local", help="who does the work")
    parser.add_argument("--workers", type=int, default=0, help="Ray's replicas of the pair (0: one a GPU, or two)")
    parser.add_argument("--check", type=Path, default=None, help="validate this data set and make none")
    parser.add_argument("--merge", type=list[Path], default=[], help="make `out` of these data sets")


def _train(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="a data set made by `ddte generate`")
    parser.add_argument("--profile", type=Path, required=True, help="pass times made by `ddte profile`")
    parser.add_argument("--out", type=Path, required=True, help="the run folder; an interrupted run goes on")


def _evaluate(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--run", type=Path | list[Path], required=True, help="a run folder of `ddte train`, or several seeds' in a list"
    )
    parser.add_argument("--data", type=Path, required=True, help="the data set that the run was trained on")
    parser.add_argument(
        "--test-data", type=Path, default=None, help="another data set to score on (default: held-out prompts)"
    )
    parser.add_argument("--profile", type=Path, default=None, help="another machine's pass times (default: the run's)")
    parser.add_argument("--out", type=Path, required=True, help="folder of metrics.json and report.html")


def _export(parser: ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, required=True, help="a run folder of `ddte train`")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets one checkpoint a verifier")
    parser.add_argument("--metrics", type=Path, default=None, help="metrics.json for the model cards")


def _decode(parser: ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, required=True, help="a checkpoint folder of `ddte export`")
    parser.add_argument("--prompt", type=str, default=None, help="the user's message")
    parser.add_argument("--prompts", type=str, default=None, help="JSONL file, or `-` for lines of stdin; needs --out")
    parser.add_argument("--out", type=Path, default=None, help="JSONL file of answers; an interrupted one goes on")
    parser.add_argument(
        "--profile", type=Path, default=None, help="this machine's pass times (default: the checkpoint's)"
    )


def _profile(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="the profile's JSON file")


def _bench(parser: ArgumentParser) -> None:
    kinds = parser.add_subcommands(required=True, dest="what")
    for kind, (description, shown, arguments) in BENCHES.items():
        sub = _Parser(description=description, usage=f"ddte bench {kind} [--config FILE] [flags]", allow_abbrev=False)
        kinds.add_subcommand(kind, sub, help=description)
        arguments(sub)
        sub.add_argument("--json", type=Path, default=None, help="write the rows here as well")
        _add_sections(sub, shown)


def _bench_decode(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint", type=list[Path], default=[], help="selectors to measure, with their best static trees"
    )
    parser.add_argument("--static", type=list[str], default=[], help="static trees to measure, each (K, L1, L2)")
    parser.add_argument("--verifier", type=str, default="traversal", help="verifier of the static trees")
    parser.add_argument(
        "--profile", type=Path, default=None, help="this machine's pass times (default: the checkpoints')"
    )
    parser.add_argument("--prompts", type=list[str], default=["builtin"], help="`builtin` or JSONL files")
    parser.add_argument("--prompts-per-task", type=int, default=2, help="prompts of each task")
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


def _bench_generate(parser: ArgumentParser) -> None:
    parser.add_argument("--units", type=int, default=4, help="trajectories to label, the first of the plan")


def _bench_verification(parser: ArgumentParser) -> None:
    parser.add_argument("--nodes", type=list[int], default=[8, 16, 33, 65], help="sizes of the tree")
    parser.add_argument(
        "--vocabularies", type=list[int], default=[32_000, 49_152, 152_064, 262_144], help="sizes of the vocabulary"
    )
    parser.add_argument("--verifiers", type=list[str], default=[], help="names (default: all)")
    parser.add_argument("--seconds", type=float, default=8.0, help="time for each pair of sizes")


def _bench_efficiency(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="a data set made by `ddte generate`")
    parser.add_argument(
        "--actions",
        type=list[str],
        default=["(4, 0, 4)", "(4, 1, 3)", "(4, 2, 4)", "(4, 4, 4)"],
        help="trees to compare verifiers at, each (K, L1, L2)",
    )


BENCHES: dict[str, tuple[str, set[str], Callable[[ArgumentParser], None]]] = {
    "decode": ("Throughput against plain and assisted decoding, interleaved.", {"pair", "decode"}, _bench_decode),
    "generate": (
        "Roots a minute, where the time goes, and the cost of the same labels by one drawing an action.",
        {"pair", "action_space", "generate"},
        _bench_generate,
    ),
    "verification": ("Time of a step's verification beside one read of its laws.", set(), _bench_verification),
    "efficiency": (
        "Tokens a step of every verifier on a data set's laws, as markdown.",
        {"evaluate"},
        _bench_efficiency,
    ),
}


def _verify(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--cases", type=Path, default=None, help="worked cases in the examples' JSON format, instead of --config"
    )
    parser.add_argument("--verifier", type=str, default="traversal", help="verifier of the decoder that is checked")
    parser.add_argument("--tokens", type=int, default=48, help="length of each greedy text")
    parser.add_argument("--texts", type=int, default=300, help="texts that are sampled for the check of the law")


def _distill(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="the draft folder")
    parser.add_argument("--work", type=Path, default=None, help="folder of the sampled text and the training state")


def _run(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="folder of the whole run; an interrupted one goes on")


_ARGUMENTS: dict[str, Callable[[ArgumentParser], None]] = {
    "generate": _generate,
    "train": _train,
    "evaluate": _evaluate,
    "export": _export,
    "decode": _decode,
    "profile": _profile,
    "bench": _bench,
    "verify": _verify,
    "distill": _distill,
    "run": _run,
}


def main(argv: list[str] | None = None) -> int:
    """Run a verb. Bad input prints one sentence and gives exit code 2."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parser = build_parser()
    try:
        parsed: Namespace = parser.parse_args(argv)
    except UnicodeDecodeError as error:
        print(f"ddte: the configuration file is not UTF-8 text ({error}): save it as UTF-8.", file=sys.stderr)
        return 2
    arguments = parser.instantiate(parsed)[parsed.verb]
    from selector import commands

    try:
        code = int(getattr(commands, parsed.verb)(arguments) or 0)
        sys.stdout.flush()
    except UserError as error:
        print(f"ddte {parsed.verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        resumed = parsed.verb in RESUMED or (parsed.verb == "decode" and arguments.prompts)
        way_on = "; the same command goes on from here" if resumed else ""
        print(f"ddte {parsed.verb}: interrupted{way_on}.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Who read the output is gone; what is still buffered must not fail once more at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return code


if __name__ == "__main__":
    sys.exit(main())
