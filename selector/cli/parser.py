"""What all verbs read alike: one configuration file in sections, flags after it, and errors in one sentence."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, get_type_hints

from jsonargparse import ArgumentParser

from selector.cli.config_file import ConfigFile
from selector.cli.errors import sentence
from selector.config import Config

SECTIONS: dict[str, type] = get_type_hints(Config)


class Parser(ArgumentParser):
    """Errors are one sentence, exit code 2."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """See `sentence`."""
        print(sentence(self, str(message)), file=sys.stderr)
        raise SystemExit(2)


class Verb(NamedTuple):
    """A verb's help, its flags, what it does (its exit code, None for 0), and the sections that its help shows.

    The other sections are read and checked as well, so that one file serves all verbs; None takes no file.
    """

    description: str
    flags: Callable[[ArgumentParser], None]
    run: Callable[[Any], int | None]
    sections: set[str] | None


def add_verbs(parser: ArgumentParser, verbs: Mapping[str, Verb], dest: str, command: str) -> None:
    """Subcommands of `parser`; the chosen one's name is in `dest`."""
    subcommands = parser.add_subcommands(required=True, dest=dest)
    for name, verb in verbs.items():
        usage = f"{command} {name} [--config FILE] [flags]"
        sub = Parser(description=verb.description, usage=usage, allow_abbrev=False)
        subcommands.add_subcommand(name, sub, help=verb.description)  # first, since one verb has verbs of its own
        verb.flags(sub)
        if verb.sections is not None:
            _add_sections(sub, verb.sections)


def _add_sections(parser: ArgumentParser, shown: set[str]) -> None:
    parser.add_argument("--config", action=ConfigFile, help="a pair's YAML file, as configs/smollm2-135m.yaml")
    for name, section in SECTIONS.items():
        before = len(parser._actions)
        parser.add_class_arguments(section, name)
        for action in parser._actions[before:]:
            if name not in shown:
                action.help = argparse.SUPPRESS


def resolve_config(arguments: Any) -> Config:
    """The parsed sections as the one frozen `Config`."""
    return Config(**{name: getattr(arguments, name) for name in SECTIONS})
