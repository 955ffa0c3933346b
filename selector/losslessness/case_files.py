"""Reading a file of worked examples: everything that a case needs is there and fits, before any case is computed.

Laws that are given must be laws; numbers that are expected may be wrong, which is what the check is for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from selector.errors import UserError
from selector.trees.verifiers import VERIFIERS
from selector.verification.solvers import SOLVERS

FORMAT = 1
REMEDY = "give a file of worked examples"
KEYS = {
    "otlp": ("solver", "p", "q", "tokens", "law"),
    "acceptance": ("p", "q", "k", "alpha"),
    "trees": ("V", "trunk", "branches", "nodes", "results"),
}
SUM_TOLERANCE = 1e-6


class Damage(Exception):
    """What is wrong with a case, in a few words."""


def read_cases(path: Path) -> dict[str, Any]:
    """The checked file; a UserError names the first case that is damaged."""
    try:
        cases = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"cases is {str(path)!r}, which does not exist: give a JSON file of worked examples.") from None
    except OSError as error:
        raise UserError(f"cases is {str(path)!r}, which cannot be read ({error.strerror}): {REMEDY}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"cases is {str(path)!r}, which is not JSON ({error}): {REMEDY}.") from None
    if not isinstance(cases, dict) or cases.get("format") != FORMAT:
        raise UserError(f"cases is {str(path)!r}, which is not of format {FORMAT}: {REMEDY}.")
    for kind, check in (("otlp", check_otlp), ("acceptance", check_acceptance), ("trees", check_tree)):
        if not isinstance(cases.get(kind), list):
            raise UserError(f"cases is {str(path)!r}, which has no list of {kind}: {REMEDY}.")
        for number, case in enumerate(cases[kind], 1):
            try:
                _check_keys(case, ("id", "note", *KEYS[kind]))
                check(case)
            except Damage as damage:
                raise UserError(f"case {number} of {kind} in {str(path)!r} {damage}: {REMEDY}.") from None
    return cases


def check_otlp(case: Mapping[str, Any]) -> None:
    """A solver's law given its drafts."""
    if case["solver"] not in SOLVERS:
        raise Damage(f"has the solver {case['solver']!r}, which is none of {', '.join(SOLVERS)}")
    vocab = _check_laws(case)
    if not _tokens(case["tokens"], vocab) or not case["tokens"]:
        raise Damage(f"has tokens {case['tokens']!r}, not one or more tokens below {vocab}")
    _check_numbers("law", case["law"], vocab)
    _check_rate("acceptance", case.get("acceptance"))


def check_acceptance(case: Mapping[str, Any]) -> None:
    """Rates over random drafts."""
    _check_laws(case)
    if not isinstance(case["k"], int) or case["k"] < 1:
        raise Damage(f"has k {case['k']!r}, not a number of drafts")
    if not isinstance(case["alpha"], dict):
        raise Damage("has no rates by solver in alpha")
    for name, rate in case["alpha"].items():
        _check_rate(f"alpha of {name}", rate)
    _check_rate("khisti_first_round_value", case.get("khisti_first_round_value"))


def check_tree(case: Mapping[str, Any]) -> None:
    """A tree's laws, and results that speak of its nodes."""
    vocab, trunk, branches = case["V"], case["trunk"], case["branches"]
    if not isinstance(vocab, int) or vocab < 1:
        raise Damage(f"has V {vocab!r}, not a number of tokens")
    if not isinstance(branches, list) or not branches or not all(_tokens(path, vocab) for path in (trunk, *branches)):
        raise Damage(f"has a trunk or branches that are not lists of tokens below {vocab}")
    if len({len(branch) for branch in branches}) > 1:
        raise Damage("has branches of different lengths")
    paths = [(*trunk, *branch) for branch in branches]
    inner = {path[:end] for path in paths for end in range(len(path))}
    laws = {}
    for node in _objects("nodes", case["nodes"]):
        _check_keys(node, ("prefix", "p", "q"))
        laws[_prefix(node["prefix"], vocab)] = node
    for prefix in sorted(inner.union(paths)):
        if prefix not in laws:
            raise Damage(f"has no node {list(prefix)}")
        for name in "pq" if prefix in inner else "p":
            _check_law(f"{name} of node {list(prefix)}", laws[prefix][name], vocab)
    if not isinstance(case["results"], dict):
        raise Damage("has no results by algorithm")
    for name, result in case["results"].items():
        if name not in VERIFIERS:
            raise Damage(f"has results of {name!r}, which is none of {', '.join(VERIFIERS)}")
        _check_result(name, result, inner.union(paths), vocab)


def _check_result(name: str, result: Any, nodes: set[tuple[int, ...]], vocab: int) -> None:
    if not isinstance(result, dict):
        raise Damage(f"has results of {name} that are not an object")
    _check_keys(result, ("expected", "outcome"))
    _check_numbers(f"the expected tokens of {name}", [result["expected"]], 1)
    if not isinstance(result["outcome"], list):
        raise Damage(f"has an outcome of {name} that is not a list")
    for entry in result["outcome"]:
        if not isinstance(entry, list) or len(entry) != 2:
            raise Damage(f"has an outcome of {name} whose entries are not pairs of a node and its numbers")
        if _prefix(entry[0], vocab) not in nodes:
            raise Damage(f"has an outcome of {name} at {entry[0]!r}, which is no node of its tree")
        _check_numbers(f"the outcome of {name}", entry[1], vocab)


def _check_keys(case: Any, keys: Sequence[str]) -> None:
    if not isinstance(case, dict):
        raise Damage("is not an object")
    missing = [key for key in keys if key not in case]
    if missing:
        raise Damage(f"has no {missing[0]}")
    for key in {"id", "note"}.intersection(keys):
        if not isinstance(case[key], str):
            raise Damage(f"has a {key} that is no text, {case[key]!r}")


def _check_laws(case: Mapping[str, Any]) -> int:
    """Both laws of a node; the number of their tokens."""
    if not isinstance(case["p"], list) or not case["p"]:
        raise Damage("has a p that is not a list of numbers")
    vocab = len(case["p"])
    for name in "pq":
        _check_law(name, case[name], vocab)
    return vocab


def _check_law(name: str, law: Any, vocab: int) -> None:
    _check_numbers(name, law, vocab)
    if min(law, default=-1.0) < 0 or abs(sum(law) - 1) > SUM_TOLERANCE:
        raise Damage(f"has a law {name} that is negative somewhere or does not sum to 1")


def _check_numbers(name: str, values: Any, count: int) -> None:
    if not isinstance(values, list) or len(values) != count or not all(map(_is_number, values)):
        what = "a finite number" if count == 1 else f"{count} finite numbers"
        raise Damage(f"needs {what} in {name}")


def _check_rate(name: str, value: Any) -> None:
    if value is not None and not _is_number(value):
        raise Damage(f"has {value!r} for {name}, not a finite number")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _tokens(values: Any, vocab: int) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < vocab for value in values)


def _prefix(values: Any, vocab: int) -> tuple[int, ...]:
    if not _tokens(values, vocab):
        raise Damage(f"has a node {values!r}, which is not a list of tokens below {vocab}")
    return tuple(values)


def _objects(name: str, values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise Damage(f"has no list of {name}")
    return values
