"""Worked examples in a JSON file, checked against the solvers and verifiers (`ddte verify --cases FILE`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selector.losslessness.case_files import read_cases
from selector.trees.draft_tree import DraftTree
from selector.trees.topology import build_topology, prefix_of
from selector.trees.verifiers import VERIFIERS
from selector.verification.khisti import play
from selector.verification.node_distributions import Drafts, NodeLaws
from selector.verification.proposal import ProposalSolver
from selector.verification.solver import Solver
from selector.verification.solvers import SOLVERS

NEEDS_FLOAT64 = ("nearly equal", "tiny")
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5}


Comparison = tuple[str, Tensor, Tensor]
"""An algorithm (or what of it), our numbers, and those of the case."""


class CaseResult(NamedTuple):
    """Our numbers beside those of a case, and their largest absolute difference.

    Khisti and Ranked follow the canonical plans by themselves, so that plans in the file are not injected.
    """

    case: str
    algorithm: str
    computed: list[float]
    expected: list[float]
    difference: float
    ok: bool


def check_cases(path: Path, dtype: torch.dtype = torch.float64) -> Iterator[CaseResult]:
    """Compare every case; float32 leaves out cases that need float64."""
    cases = read_cases(path)
    for kind, compare in (("otlp", _compare_otlp), ("acceptance", _compare_acceptance), ("trees", _compare_tree)):
        for case in cases[kind]:
            if dtype != torch.float64 and any(words in case["note"] for words in NEEDS_FLOAT64):
                continue
            for algorithm, computed, expected in compare(case, dtype):
                difference = float((computed - expected).abs().max())
                ok = difference <= TOLERANCES[dtype]
                yield CaseResult(case["id"], algorithm, computed.tolist(), expected.tolist(), difference, ok)


def case_tree(case: dict[str, Any], dtype: torch.dtype) -> tuple[DraftTree, Tensor, dict[tuple[int, ...], int]]:
    """The tree of a case, its target laws `[nodes, vocab]`, and the node of each prefix."""
    topology, tokens = build_topology(case["trunk"], case["branches"])
    prefixes = {prefix_of(topology, tokens, node): node for node in range(len(topology))}
    laws = {tuple(node["prefix"]): node for node in case["nodes"]}
    target = torch.tensor([laws[prefix]["p"] for prefix in prefixes], dtype=dtype)
    draft = [laws[prefix]["q"] for prefix, node in prefixes.items() if topology.children[node]]
    draft_probs = torch.tensor(draft, dtype=dtype).reshape(len(draft), case["V"])
    return DraftTree(topology, torch.tensor(tokens), draft_probs), target, prefixes


def drafts_of(laws: NodeLaws, tokens: Sequence[int]) -> Drafts:
    """Tokens that were drafted at row 0."""
    target, draft = laws.at([0] * len(tokens), tokens)
    return Drafts(0, tuple(tokens), tuple(target), tuple(draft))


def solver_law(solver: Solver, laws: NodeLaws, tokens: Sequence[int]) -> Tensor:
    """`[vocab]`: the solver's output law given its drafts, in row 0."""
    solution = solver.solve(laws, [drafts_of(laws, tokens)])[0]
    law = laws.residual(0, solution.factor, list(solution.branching), solution.proposal)
    law = law / law.sum() * max(0.0, 1 - sum(solution.branching.values()))
    for token, probability in solution.branching.items():
        law[token] = probability
    return law


def _compare_otlp(case: dict[str, Any], dtype: torch.dtype) -> Iterator[Comparison]:
    solver, laws = SOLVERS[case["solver"]], _laws(case, dtype)
    yield _comparison(case["solver"], solver_law(solver, laws, case["tokens"]), case["law"])
    rate = solver.acceptance(laws, [(0, len(case["tokens"]))])[0]
    if rate is not None and case.get("acceptance") is not None:
        yield _comparison(f"{case['solver']} rate", rate, case["acceptance"])


def _compare_acceptance(case: dict[str, Any], dtype: torch.dtype) -> Iterator[Comparison]:
    for name, solver in SOLVERS.items():
        rate, expected = solver.acceptance(_laws(case, dtype), [(0, case["k"])])[0], case["alpha"].get(name)
        if rate is not None and expected is not None:
            yield _comparison(name, rate, expected)
        bound = case["alpha"].get(f"{name}_lower_bound")
        if isinstance(solver, ProposalSolver) and bound is not None:
            yield _comparison(f"{name} plan", _proposed(solver, case, dtype), bound)
    value = case.get("khisti_first_round_value")
    if value is not None:
        target, draft = (torch.tensor(case[law], dtype=dtype).double() for law in "pq")
        yield _comparison("khisti first round", torch.minimum(target, play(target, draft, draft).law).sum(), value)


def _proposed(solver: ProposalSolver, case: dict[str, Any], dtype: torch.dtype) -> float:
    """`sum min(p, r)`: the chance that the draft which the solver's plan chooses is accepted itself."""
    laws, count = _laws(case, dtype), case["k"]
    law = laws.draft_probs[0] if count == 1 else solver.make_plans(laws, 0, [count])[count].law
    return float(torch.minimum(laws.target_probs[0].double(), law.double()).sum())


def _compare_tree(case: dict[str, Any], dtype: torch.dtype) -> Iterator[Comparison]:
    tree, target, nodes = case_tree(case, dtype)
    for name, result in case["results"].items():
        expected = torch.zeros_like(target)
        for prefix, row in result["outcome"]:
            expected[nodes[tuple(prefix)]] = torch.tensor(row, dtype=dtype)
        yield name, VERIFIERS[name].outcome(tree, target).flatten().double(), expected.flatten().double()
        yield _comparison(f"{name} tokens", VERIFIERS[name].expected_tokens(tree, target), result["expected"])


def _laws(case: dict[str, Any], dtype: torch.dtype) -> NodeLaws:
    return NodeLaws(torch.tensor([case["p"]], dtype=dtype), torch.tensor([case["q"]], dtype=dtype))


def _comparison(algorithm: str, computed: Tensor | float, expected: Sequence[float] | float) -> Comparison:
    found, wanted = (torch.as_tensor(value, dtype=torch.float64).reshape(-1) for value in (computed, expected))
    return algorithm, found, wanted
