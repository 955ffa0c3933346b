"""What jsonargparse and argparse say of a command line, as sentences that name flag, value and the way out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list, as [A, B]",
    "tuple": "a group of values, as [A, B]",
    "dict": "settings, as {KEY: VALUE}",
    "Path": "a path",
}
TYPE = re.compile(
    r"Literal\[(?P<choices>[^\]]*)\]|<class '(?:\w+\.)*(?P<kind>\w+)'>|(?P<generic>list|tuple|dict)\[[^\]]*\]"
)
SINGLE = re.compile(r'Parser key "(?P<key>[\w.]+)": Expected an? (?P<types>.*)\. Got value: ?(?P<value>.*)')
BARE = re.compile(r'Parser key "(?P<key>[\w.]+)": Unable to load config "(?P<value>.*)"')
UNION = re.compile(
    r'Parser key "(?P<key>[\w.]+)": .*?Subtypes: \[(?P<types>.*)\] Errors: .*Given value: ?(?P<value>.*)'
)
REQUIRED = re.compile(r"the following arguments are required: (?P<names>.*)")
NO_VERB = re.compile(r'expected "(?P<group>.*)\.verb" to be one of {(?P<choices>.*)}')
WRONG_VERB = re.compile(r"argument verb: invalid choice: (?P<value>.*) \(choose from (?P<choices>.*)\)")
NO_VALUE = re.compile(r"argument (?P<flag>--[\w.]+): expected one argument")


def sentence(message: str, command: str, known: Collection[str]) -> str:
    """`COMMAND: SENTENCE` for a parser's message; one that it has no pattern for is given on one line as it is.

    `known` are the names of the command's flags, for one that was misspelt.
    """
    text = " ".join(message.split())
    if text.startswith("unrecognized arguments: "):
        text = _unknown(text.partition(": ")[2].split(), command, known)
    elif match := REQUIRED.search(text):
        paths = [name.split(".") for name in match["names"].split(", ")]
        command = " ".join([command, *paths[0][:-1]])
        names = _join([f"--{path[-1]}" for path in paths], "and")
        text = f"{names} {'is' if len(paths) == 1 else 'are'} left out: `{command} --help` says what to give."
    elif match := NO_VERB.search(text):
        command = " ".join([command, *match["group"].split(".")])
        text = f"verb is left out: choose {_join(match['choices'].split(','))}."
    elif match := WRONG_VERB.search(text):
        text = f"verb is {match['value']}: choose {_join(_choices(match['choices']))}."
    elif match := NO_VALUE.search(text):
        text = f"{match['flag']} has no value: give one after it."
    else:
        text = of_value(text)
    return f"{command}: {text}"


def of_value(message: str) -> str:
    """The sentence for a value that its field does not take; other messages are given back on one line."""
    text = " ".join(message.split())
    innermost = text[max(text.rfind('Parser key "'), 0) :]
    if match := BARE.search(innermost):
        return f"{match['key']} is {match['value']!r}: give {KINDS['dict']}."
    match = UNION.search(innermost) or SINGLE.search(innermost)
    if match is None:
        return text
    value = match["value"] if match["value"][:1] in ("[", "{") else repr(match["value"])
    return f"{match['key']} is {value}: give {_wanted(match['types'])}."


def _unknown(words: Sequence[str], command: str, known: Collection[str]) -> str:
    flag = next((word.partition("=")[0] for word in words if word.startswith("--")), "")
    if not flag:
        return f"{' '.join(words)!r} belongs to no flag: put a text of several words in quotes."
    name = flag[2:]
    near = [full for full in known if full.rpartition(".")[2] == name] or difflib.get_close_matches(name, known, 1, 0.7)
    near.sort(key=lambda full: full.partition(".")[0] not in command.split())  # the verb's own section first
    way_out = f"did you mean --{near[0]}?" if near else f"`{command} --help` lists what there is."
    return f"{flag} is no flag of `{command}`: {way_out}"


def _wanted(types: str) -> str:
    """The types of an annotation in words; None is what a flag that is left out has."""
    found = list[str]()
    for match in TYPE.finditer(types):
        kind = match["kind"] or match["generic"]
        if kind != "NoneType":
            found.extend([KINDS.get(kind, kind)] if kind else _choices(match["choices"]))
    return _join(found) if found else f"a {types}"


def _choices(text: str) -> list[str]:
    return [word.strip(" '") for word in text.split(",")]


def _join(words: Sequence[str], last: str = "or") -> str:
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else words[0]
