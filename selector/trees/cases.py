"""Worked examples in a JSON file, checked against the solvers and verifiers (`ddte verify --cases FILE`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selector.errors import UserError
from selector.trees.draft_tree import DraftTree
from selector.trees.topology import Topology
from selector.trees.verifiers import VERIFIERS
from selector.verification.khisti import play
from selector.verification.laws import NodeLaws
from selector.verification.proposal import ProposalSolver
from selector.verification.solver import Solver
from selector.verification.solvers import SOLVERS

FORMAT = 1
REMEDY = "give a file of worked examples"
KEYS = {
    "otlp": ("solver", "p", "q", "tokens", "law"),
    "acceptance": ("p", "q", "k", "alpha", "khisti_first_round_value"),
    "trees": ("V", "trunk", "branches", "nodes", "results"),
}
NEEDS_FLOAT64 = ("nearly equal", "tiny")
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5}


class CaseResult(NamedTuple):
    """Largest absolute difference between our numbers and those of a case.

    Khisti and Ranked follow the canonical plans by themselves, so that plans in the file are not injected.
    """

    case: str
    algorithm: str
    difference: float
    ok: bool


def check_cases(path: Path, dtype: torch.dtype = torch.float64) -> Iterator[CaseResult]:
    """Compare every case of an algorithm that exists here; float32 leaves out cases that need float64."""
    cases = read_cases(path)
    tolerance = TOLERANCES[dtype]
    for kind, compare in (("otlp", _compare_otlp), ("acceptance", _compare_acceptance), ("trees", _compare_tree)):
        for case in cases[kind]:
            if dtype != torch.float64 and any(words in case["note"] for words in NEEDS_FLOAT64):
                continue
            try:
                found = list(compare(case, dtype))
            except (KeyError, TypeError, ValueError, IndexError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise UserError(f"case {case['id']!r} of {str(path)!r} is damaged ({reason}): {REMEDY}.") from error
            for algorithm, difference in found:
                yield CaseResult(case["id"], algorithm, difference, difference <= tolerance)


def read_cases(path: Path) -> dict[str, Any]:
    """Load and check the file."""
    try:
        cases = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"cases is {str(path)!r}, which does not exist: give a JSON file of worked examples.") from None
    except OSError as error:
        raise UserError(f"cases is {str(path)!r}, which cannot be read ({error.strerror}): {REMEDY}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"cases is {str(path)!r}, which is not JSON ({error}): {REMEDY}.") from None
    if not isinstance(cases, dict) or cases.get("format") != FORMAT:
        raise UserError(f"cases is {str(path)!r}, which is not of format {FORMAT}: {REMEDY}.")
    for kind, keys in KEYS.items():
        if not isinstance(cases.get(kind), list):
            raise UserError(f"cases is {str(path)!r}, which has no list of {kind}: {REMEDY}.")
        for number, case in enumerate(cases[kind], 1):
            _check_case(f"case {number} of {kind} in {str(path)!r}", case, keys)
    return cases


def _check_case(place: str, case: Any, keys: Sequence[str]) -> None:
    if not isinstance(case, dict):
        raise UserError(f"{place} is not an object: {REMEDY}.")
    missing = [key for key in ("id", "note", *keys) if key not in case]
    if missing:
        raise UserError(f"{place} has no {missing[0]}: {REMEDY}.")
    for key in ("id", "note"):
        if not isinstance(case[key], str):
            raise UserError(f"{key} of {place} is {case[key]!r}: {REMEDY}.")


def case_tree(case: dict[str, Any], dtype: torch.dtype) -> tuple[DraftTree, Tensor, dict[tuple[int, ...], int]]:
    """The tree of a case, its target laws `[nodes, vocab]`, and the node of each prefix."""
    topology, tokens = build_topology(case["trunk"], case["branches"])
    prefixes = {prefix_of(topology, tokens, node): node for node in range(len(topology))}
    laws = {tuple(node["prefix"]): node for node in case["nodes"]}
    target = torch.tensor([laws[prefix]["p"] for prefix in prefixes], dtype=dtype)
    draft = [laws[prefix]["q"] for prefix, node in prefixes.items() if topology.children[node]]
    draft_probs = torch.tensor(draft, dtype=dtype).reshape(len(draft), case["V"])
    return DraftTree(topology, torch.tensor(tokens), draft_probs), target, prefixes


def build_topology(trunk: Sequence[int], branches: Sequence[Sequence[int]]) -> tuple[Topology, list[int]]:
    """Merge a trunk and branches of equal length into a tree; tokens of the nodes (0 for the root)."""
    topology, tokens = Topology(), [0]
    ends = [0]
    for token in trunk:
        ends = _extend(topology, tokens, ends, [token])
    ends = ends * len(branches)
    for step in zip(*branches, strict=True):
        ends = _extend(topology, tokens, ends, step)
    return topology, tokens


def _extend(topology: Topology, tokens: list[int], ends: Sequence[int], step: Sequence[int]) -> list[int]:
    """One more token on each path; paths that are equal so far share a node."""
    reached: dict[tuple[int, int], int] = {}
    for end, token in zip(ends, step, strict=True):
        if (end, token) in reached:
            topology.children[end].append(reached[end, token])
        else:
            reached[end, token] = topology.add(end)
            tokens.append(token)
    return [reached[pair] for pair in zip(ends, step, strict=True)]


def prefix_of(topology: Topology, tokens: Sequence[int], node: int) -> tuple[int, ...]:
    """Tokens from the root (left out) to a node."""
    return tuple(tokens[step] for step in topology.path(node))


def solver_law(solver: Solver, laws: NodeLaws, tokens: Sequence[int]) -> Tensor:
    """`[vocab]`: the solver's output law given its drafts, in row 0."""
    solution = solver.solve(laws, laws.drafts([(0, tokens)]))[0]
    law = laws.residual(0, solution.factor, list(solution.branching), solution.proposal)
    law = law / law.sum() * max(0.0, 1 - sum(solution.branching.values()))
    for token, probability in solution.branching.items():
        law[token] = probability
    return law


def _compare_otlp(case: dict[str, Any], dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    solver = SOLVERS.get(case["solver"])
    if solver is not None:
        law = solver_law(solver, _laws(case, dtype), case["tokens"])
        yield case["solver"], _difference(law, case["law"])


def _compare_acceptance(case: dict[str, Any], dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    for name, solver in SOLVERS.items():
        rate = solver.acceptance(_laws(case, dtype), [(0, case["k"])])[0]
        if rate is not None and name in case["alpha"]:
            yield name, abs(rate - case["alpha"][name])
        if isinstance(solver, ProposalSolver):
            yield f"{name} plan", abs(_proposed(solver, case, dtype) - case["alpha"][f"{name}_lower_bound"])
    if case["khisti_first_round_value"] is not None:
        target, draft = (torch.tensor(case[law], dtype=dtype).double() for law in "pq")
        value = torch.minimum(target, play(target, draft, draft).law).sum()
        yield "khisti first round", abs(float(value) - case["khisti_first_round_value"])


def _proposed(solver: ProposalSolver, case: dict[str, Any], dtype: torch.dtype) -> float:
    """`sum min(p, r)`: the chance that the draft which the solver's plan chooses is accepted itself."""
    target, draft = (torch.tensor(case[law], dtype=dtype).double() for law in "pq")
    law = draft if case["k"] == 1 else solver.plan(target, draft, case["k"]).law
    return float(torch.minimum(target, law).sum())


def _compare_tree(case: dict[str, Any], dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    tree, target, nodes = case_tree(case, dtype)
    for name, result in case["results"].items():
        if name in VERIFIERS:
            expected = torch.zeros_like(target)
            for prefix, row in result["outcome"]:
                expected[nodes[tuple(prefix)]] = torch.tensor(row, dtype=dtype)
            outcome = (VERIFIERS[name].outcome(tree, target) - expected).abs().max()
            tokens = abs(float(VERIFIERS[name].expected_tokens(tree, target)) - result["expected"])
            yield name, max(float(outcome), tokens)


def _laws(case: dict[str, Any], dtype: torch.dtype) -> NodeLaws:
    return NodeLaws(torch.tensor([case["p"]], dtype=dtype), torch.tensor([case["q"]], dtype=dtype))


def _difference(found: Tensor, expected: Sequence[float]) -> float:
    return float((found - torch.tensor(expected, dtype=found.dtype)).abs().max())
