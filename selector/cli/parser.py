"""The parser of `ddte`: a typed function a verb, one configuration file in sections, flags after it win."""

from __future__ import annotations

import argparse
import difflib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, get_type_hints

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser  # type: ignore[attr-defined]
from jsonargparse.typing import register_type

from selector.cli.parse_errors import sentence
from selector.config import Config
from selector.shipped import find

SECTIONS: dict[str, type] = get_type_hints(Config)
GIVEN: set[str | int] = {
    *SECTIONS,
    "config",
    "config_file",
    "given",
}  # parameters of a verb's function that are no flags of its own


def _path(text: str) -> Path:
    """A flag's path; an empty one would be the folder that the command is run in."""
    if not text:
        raise ValueError("a path is empty")
    return Path(text)


register_type(Path, str, _path, type_check=isinstance)


class Verb(NamedTuple):
    """A function, its docstring being the help, and the sections that the help shows.

    The function takes flags, sections by name, the whole `config`, the path of the `config_file` if one is given, and
    the words `given` of the command line that set the configuration; it returns its exit code, None for 0. Sections
    that are not shown are read and checked as well, so that one file serves all verbs.
    """

    run: Callable[..., int | None]
    sections: Sequence[str] = ()

    @property
    def about(self) -> str:
        """The first sentence of the function's docstring."""
        return (inspect.getdoc(self.run) or "").split("\n\n")[0]


class Group(NamedTuple):
    """Verbs of a verb."""

    about: str
    verbs: Mapping[str, Verb]


class Parser(ArgumentParser):
    """Says in one sentence what jsonargparse complains of, with exit code 2."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the sentence and leave."""
        print(sentence(str(message), self.prog, [action.dest for action in self._actions]), file=sys.stderr)
        raise SystemExit(2)


class UniqueKeys(yaml.SafeLoader):
    """YAML whose keys are not repeated; YAML itself lets the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raises ConstructorError for the second of two equal keys."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                mark = node.value[place][0].start_mark
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", mark)
        return super().construct_mapping(node, deep)


class ConfigFile(ActionConfigFile):
    """The action of `--config`: refuses what jsonargparse would let pass or end in a traceback for."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Read the file `values`, or a shipped one by name, into `namespace`."""
        values = str(find(values))
        try:
            content = yaml.load(Path(values).read_text("utf-8"), UniqueKeys)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            parser.error(f"config file '{values}' cannot be read ({reason}): give a pair's YAML file.")
        sections: dict[Any, Any] = content if isinstance(content, dict) else {"": None}
        for name, section in sections.items():
            if name in ("", *SECTIONS) and not isinstance(section, dict):
                parser.error(f"config file '{values}' holds no settings of {name or 'any section'}: write 'KEY: VALUE'")
            unknown = [f"{name}.{key}" for key in section] if name in SECTIONS else [str(name)]
            self._refuse_unknown(parser, values, unknown)
        super().__call__(parser, namespace, values, option_string)  # type: ignore[no-untyped-call]

    def _refuse_unknown(self, parser: Any, file: Any, keys: Sequence[str]) -> None:
        known = [action.dest for action in parser._actions]
        for key in keys:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1, 0.7)
                parser.error(f"config file '{file}' has no use for {key!r}" + f"; did you mean {near}?" * bool(near))


def add_verbs(parser: ArgumentParser, verbs: Mapping[str, Verb | Group], command: str) -> None:
    """Subcommands of `parser`; the chosen one's name is in `verb`."""
    subcommands = parser.add_subcommands(required=True, dest="verb")
    for name, verb in verbs.items():
        if isinstance(verb, Group):
            group = Parser(description=verb.about, usage=f"{command} {name} VERB [flags]", allow_abbrev=False)
            subcommands.add_subcommand(name, group, help=verb.about)
            group.prog = f"{command} {name}"
            add_verbs(group, verb.verbs, f"{command} {name}")
            continue
        usage = f"{command} {name} [--config FILE] [flags]"
        sub = Parser(
            description=(inspect.getdoc(verb.run) or "").split("\n\nArgs:")[0], usage=usage, allow_abbrev=False
        )
        subcommands.add_subcommand(name, sub, help=verb.about)
        sub.prog = f"{command} {name}"
        sub.add_function_arguments(verb.run, as_group=False, skip=GIVEN)
        for action in sub._actions:
            if getattr(action, "_typehint", None) is bool:
                action.nargs, action.const = "?", True  # `--flag` alone is `--flag true`
        sub.add_argument("--config", action=ConfigFile, help="a pair's YAML file, as configs/smollm2-135m.yaml")
        for section, kind in SECTIONS.items():
            before = len(sub._actions)
            sub.add_class_arguments(kind, section)
            for action in sub._actions[before:]:
                if section not in verb.sections:
                    action.help = argparse.SUPPRESS
