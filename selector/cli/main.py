"""The command `ddte`: one parser, one configuration language, a function a verb.

Nothing heavy is imported before a verb runs, so that help is instant.
"""

from __future__ import annotations

import os
import sys

from jsonargparse import Namespace

from selector.cli import bench as benches
from selector.cli import data, selectors
from selector.cli import decode as decoding
from selector.cli import verify as verification
from selector.cli.parser import SECTIONS, Parser, Verb, add_verbs
from selector.errors import UserError

VERBS = {
    "generate": Verb(
        "Make training data: run a pair of models over prompts, record features and labels of roots.",
        data.generate_flags,
        data.generate,
        {"pair", "action_space", "generate"},
    ),
    "train": Verb(
        "Train selectors on a data set (Lightning), one a verifier.",
        selectors.train_flags,
        selectors.train,
        {"train"},
    ),
    "evaluate": Verb(
        "Evaluate selectors on held-out prompts: metrics.json and an HTML report.",
        selectors.evaluate_flags,
        selectors.evaluate,
        {"evaluate"},
    ),
    "export": Verb(
        "Write the selectors of a run as checkpoint folders for decoding.",
        selectors.export_flags,
        selectors.export,
        set(),
    ),
    "decode": Verb(
        "Decode one prompt with a checkpoint, streaming text and ending with statistics; or many, to a file.",
        decoding.decode_flags,
        decoding.decode,
        {"pair", "decode"},
    ),
    "profile": Verb(
        "Measure this machine's pass times.",
        data.profile_flags,
        data.profile,
        {"pair", "action_space", "train"},
    ),
    "bench": Verb(
        "Measure: decoding and verification on this machine, block efficiency on a data set.",
        benches.bench_flags,
        benches.bench,
        None,
    ),
    "verify": Verb(
        "Check that decoding with a pair is lossless here, or verification algorithms against worked cases.",
        verification.verify_flags,
        verification.verify,
        {"pair"},
    ),
    "distill": Verb(
        "Make an early-exit draft for a target.",
        data.distill_flags,
        data.distill,
        {"pair", "distill"},
    ),
    "run": Verb(
        "The whole chain from one configuration; each stage skips what is already there.",
        selectors.run_flags,
        selectors.run,
        set(SECTIONS),
    ),
}
RESUMED = {"generate", "train", "distill", "run"}  # an interrupted one goes on with the same command
PIPE_CLOSED = 141  # 128 + SIGPIPE, as of other programs


def build_parser() -> Parser:
    """The parser of all verbs; every verb takes the same configuration file, flags after it win."""
    parser = Parser(
        prog="ddte", description="Dynamic delayed tree expansion for speculative decoding.", allow_abbrev=False
    )
    add_verbs(parser, VERBS, "verb", "ddte")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a verb. Bad input prints one sentence and gives exit code 2."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    parser = build_parser()
    parsed: Namespace = parser.parse_args(argv)
    arguments = parser.instantiate(parsed)[parsed.verb]
    try:
        code = int(VERBS[parsed.verb].run(arguments) or 0)
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
