"""What jsonargparse says of wrong arguments, in one sentence that names the field, its value and the way out."""

from __future__ import annotations

import difflib
import re
from argparse import _SubParsersAction
from collections.abc import Callable, Iterable
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from jsonargparse import ArgumentParser

PLAIN = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
    Path: ("a path", "paths"),
    bool: ("true or false", "true or false"),
}
CONTAINERS = {list: ("a list [A, ...]", "lists [A, ...]"), tuple: ("a pair [A, B]", "pairs [A, B]")}


def sentence(parser: ArgumentParser, message: str) -> str:
    """The error `message` of `parser`, behind the command that it is about; one of no known kind stays as it is."""
    message = re.sub(r"^Parser key ", "", " ".join(message.split()))
    command = re.sub(r" \[[^]]*\]", "", parser.prog)
    for pattern, say in RULES.items():
        if found := re.search(pattern, message):
            below, text = say(parser, *found.groups())
            return f"{' '.join([command, *below])}: {text}"
    return f"{command}: {message}" if message.endswith(("?", ".")) else f"{command}: {message}."


def meant(word: str, known: Iterable[str]) -> str:
    """A question for the nearest of `known` in the same section, behind a sentence; empty where none is near."""
    section = word[: word.rfind(".") + 1]
    names = [other.removeprefix(section) for other in known if other.startswith(section)]
    near = difflib.get_close_matches(word.removeprefix(section), names, n=1, cutoff=0.7)
    return f" Did you mean {section + near[0]!r}?" if near else ""


def words(kind: Any, place: int = 0) -> str:
    """A type in words, singular at place 0 and plural at 1: `list[int]` is a list [A, ...] of whole numbers."""
    outer, parts = get_origin(kind), [part for part in get_args(kind) if part is not type(None)]
    if outer is Literal:
        return ("one of " if len(parts) > 1 else "") + ", ".join(map(str, parts))
    if outer in (Union, UnionType):
        return " or ".join(words(part, place) for part in parts)
    if outer in CONTAINERS:
        return f"{CONTAINERS[outer][place]} of {words(parts[0], 1)}"
    return PLAIN[kind][place] if kind in PLAIN else "another value"


Said = tuple[list[str], str]  # verbs below the parser's command, and the sentence


def _below(parser: ArgumentParser, field: str) -> tuple[list[str], str, ArgumentParser]:
    """The verbs that a dotted `field` begins with, the rest, and the parser of the last verb."""
    head, _, rest = field.partition(".")
    if head not in (verbs := _verbs(parser)):
        return [], field, parser
    names, field, last = _below(verbs[head], rest)
    return [head, *names], field, last


def _verbs(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    return next((dict(action.choices) for action in parser._actions if isinstance(action, _SubParsersAction)), {})


def _wrong_value(parser: ArgumentParser, field: str, reason: str, value: str) -> Said:
    kind = next((getattr(action, "_typehint", None) for action in parser._actions if action.dest == field), None)
    outer = get_origin(kind)
    inside = outer in CONTAINERS and outer.__name__ not in reason
    return [], f"{field} {'holds' if inside else 'is'} {value!r}: give {words(kind)}."


def _no_section(parser: ArgumentParser, name: str, value: str) -> Said:
    return [], f"{name} is {value!r}: give its keys, as --{name}.KEY VALUE."


def _wrong_choice(parser: ArgumentParser, field: str, value: str, listed: str) -> Said:
    choices = listed.replace("'", "").split(", ")
    name = field.removeprefix("--") if field.startswith("-") else "verb"
    return [], f"{name} is {value!r}: choose one of {', '.join(choices)}.{meant(value, choices)}"


def _no_verb(parser: ArgumentParser, field: str) -> Said:
    names, _, last = _below(parser, field)
    return names, f"verb is left out: choose one of {', '.join(_verbs(last))}."


def _left_out(parser: ArgumentParser, fields: str) -> Said:
    found = [_below(parser, field) for field in fields.split(", ")]
    names, field, last = found[0]
    flags = ", ".join(f"--{rest}" for _, rest, _ in found)
    about = next(str(action.help) for action in last._actions if action.dest == field)
    return names, f"{field} is left out: give {flags}" + (f" ({about})." if len(found) == 1 else ".")


def _no_value(parser: ArgumentParser, flag: str) -> Said:
    kind = next(getattr(action, "_typehint", None) for action in parser._actions if flag in action.option_strings)
    return [], f"{flag.lstrip('-')} has no value: give {words(kind)} after {flag}."


def _unknown_flag(parser: ArgumentParser, given: str) -> Said:
    flag = given.split(" ")[0].split("=")[0]
    if not flag.startswith("-"):
        return [], f"{given!r} follows no flag: put a text that has blanks between quotation marks."
    known = [option for action in parser._actions for option in action.option_strings]
    command = re.sub(r" \[[^]]*\]", "", parser.prog)
    return [], f"{flag} is no flag of this verb: see `{command} --help`.{meant(flag, known)}"


def _unknown_key(parser: ArgumentParser, verb: str, key: str) -> Said:
    known = [action.dest for action in _verbs(parser)[verb]._actions]
    return [verb], f"{key} is unknown: correct or remove it.{meant(key, known)}"


RULES: dict[str, Callable[..., Said]] = {
    r'(?:^|Parser key )"([\w.]+)": ((?:Expected|Does not).*?)(?:\. Got| Given) value: (.*)$': _wrong_value,
    r"""^"(\w+)": Unable to load config ['"](.*?)['"]""": _no_section,
    r"^argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)$": _wrong_choice,
    r'^expected "([\w.]+)" to be one of': _no_verb,
    r"^the following arguments are required: (.*)$": _left_out,
    r"^argument (--\S+): expected one argument$": _no_value,
    r"^unrecognized arguments: (.*)$": _unknown_flag,
    r"^Subcommand '(\w+)' does not accept option '([\w.]+)'$": _unknown_key,
}
