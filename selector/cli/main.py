"""The command `ddte`: one parser, one configuration language, a typed function a verb.

Nothing heavy is imported before a verb runs, so that help is instant.
"""

from __future__ import annotations

import inspect
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from types import FrameType
from typing import Any

from jsonargparse import Namespace

from selector.cli import bench, data, decode, evaluate, selectors, verify
from selector.cli.next_command import configuration_words
from selector.cli.parser import SECTIONS, Group, Parser, Verb, add_verbs
from selector.config import Config
from selector.errors import UserError

VERBS: dict[str, Verb | Group] = {
    "generate": Verb(data.generate, ("pair", "action_space", "generate")),
    "train": Verb(selectors.train, ("train",)),
    "evaluate": Verb(evaluate.evaluate, ("evaluate",)),
    "export": Verb(selectors.export),
    "decode": Verb(decode.decode, ("pair", "decode")),
    "profile": Verb(data.profile, ("pair", "action_space", "train")),
    "bench": Group(
        "Measure decoding and verification on this machine, or block efficiency on a data set.", bench.BENCHES
    ),
    "verify": Verb(verify.verify, ("pair",)),
    "distill": Verb(data.distill, ("pair", "distill")),
    "run": Verb(selectors.run, tuple(SECTIONS)),
}
RESUMED = {"generate", "train", "distill", "run"}  # an interrupted one goes on with the same command
VERSION = metadata.version("ddte")
PIPE_CLOSED = 141  # 128 + SIGPIPE, as of other programs


class Stopped(BaseException):
    """SIGINT or SIGTERM came. It is no KeyboardInterrupt, for which Lightning ends the process by itself."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def build_parser() -> Parser:
    """The parser of all verbs; every verb takes the same configuration file, flags after it win."""
    about = "Dynamic delayed tree expansion for speculative decoding."
    parser = Parser(prog="ddte", description=about, allow_abbrev=False, version=VERSION)
    add_verbs(parser, VERBS, "ddte")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a verb. Bad input prints one sentence and gives exit code 2. A flag may have hyphens for underscores."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler writes its stages to standard error
    words = sys.argv[1:] if argv is None else argv
    given = [re.sub(r"(?<=[a-z])-", "_", word) if re.fullmatch("--[a-z-]+", word) else word for word in words]
    parser = build_parser()
    if not given:
        parser.print_help(sys.stderr)
        return 2
    parsed: Namespace = parser.parse_args(given)
    names, verb = [parsed.verb], VERBS[parsed.verb]
    if isinstance(verb, Group):
        names, verb = [parsed.verb, parsed[parsed.verb].verb], verb.verbs[parsed[parsed.verb].verb]
    command = " ".join(["ddte", *names])
    resumed = parsed.verb in RESUMED or (parsed.verb == "decode" and parsed.decode.get("prompts"))
    way_on = "; the same command goes on from here" if resumed else ""
    interrupted = f"{command}: interrupted{way_on}."
    try:
        with _one_line_warnings(), _stopped_by_signals(interrupted):
            flags = _flags(parser, parsed, names) | {"given": configuration_words(given)}
            code = verb.run(**{name: flags[name] for name in inspect.signature(verb.run).parameters})
        sys.stdout.flush()
        return int(code or 0)
    except UserError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, Stopped) as stop:
        print(interrupted, file=sys.stderr)
        return stop.exit_code if isinstance(stop, Stopped) else 128 + signal.SIGINT
    except BrokenPipeError:
        # Who read the output is gone; what is still buffered must not fail once more at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        if error.errno is None:
            raise
        place = f"'{error.filename}' cannot be used" if error.filename else "a file cannot be written"
        print(f"{command}: {place} ({error.strerror}): mend that, or give another place{way_on}.", file=sys.stderr)
        return 2


def _flags(parser: Parser, parsed: Namespace, names: list[str]) -> dict[str, Any]:
    """What a verb's function may take: its flags, the sections, the whole `config`, and the `config_file`."""
    flags: Any = parser.instantiate(parsed)
    for name in names:
        flags = flags[name]
    found: dict[str, Any] = vars(flags)
    file = found.pop("config")
    sections = {name: found[name] for name in SECTIONS}
    return found | {"config": Config(**sections), "config_file": file}


@contextmanager
def _stopped_by_signals(interrupted: str) -> Iterator[None]:
    """SIGINT and SIGTERM raise `Stopped` inside; while a module is imported they say `interrupted` and end the process.

    The C++ code of a module that imports others, as torch's, aborts the process for an exception there.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                os.write(2, f"{interrupted}\n".encode())
                os._exit(128 + number)
            frame = frame.f_back
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """A warning is one line without the place in the source; output keeps what its encoding lacks as an escape."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"Warning: {message}\n"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        warnings.formatwarning = before


if __name__ == "__main__":
    sys.exit(main())
