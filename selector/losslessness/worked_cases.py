"""Worked cases of a JSON file against the solvers and verifiers (`ddte verify --cases FILE`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selector.artifacts.loading import read_json
from selector.errors import UserError
from selector.trees.draft_tree import DraftTree
from selector.trees.topology import add_chain, build_topology, prefix_of
from selector.trees.verifiers import VERIFIERS
from selector.verification.khisti import play
from selector.verification.node_distributions import Drafts, NodeDistributions
from selector.verification.proposal import ProposalSolver
from selector.verification.solver import Solver
from selector.verification.solvers import SOLVERS

FORMATS = (1, 2)  # the second with a chain of copied tokens in trees
REMEDY = "give a JSON file of worked cases"
SUM_TOLERANCE = 1e-6
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


def check_cases(path: Path, dtype: torch.dtype = torch.float64) -> list[CaseResult]:
    """Compare every case; float32 leaves out cases that need float64. A UserError names the first damaged case."""
    cases = read_json(path, REMEDY)
    if not isinstance(cases, dict) or cases.get("format") not in FORMATS:
        raise UserError(f"file '{path}' is not of format {' or '.join(map(str, FORMATS))}: {REMEDY}.")
    results = []
    for kind, compare in (("otlp", _compare_otlp), ("acceptance", _compare_acceptance), ("trees", _compare_tree)):
        if not isinstance(cases.get(kind), list):
            raise UserError(f"file '{path}' has no list of {kind}: {REMEDY}.")
        for number, case in enumerate(cases[kind], 1):
            try:
                if dtype == torch.float64 or not any(words in case["note"] for words in NEEDS_FLOAT64):
                    results += [_result(case["id"], *comparison, dtype) for comparison in compare(case, dtype)]
            except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                reason = f"has no {error}" if isinstance(error, KeyError) else f"is damaged ({error})"
                raise UserError(f"case {number} of {kind} in '{path}' {reason}: {REMEDY}.") from None
    return results


def _result(case: str, algorithm: str, computed: Tensor, expected: Tensor, dtype: torch.dtype) -> CaseResult:
    difference = float((computed - expected).abs().max())
    return CaseResult(
        case, algorithm, computed.tolist(), expected.tolist(), difference, difference <= TOLERANCES[dtype]
    )


def _distribution(name: str, values: list[float], vocab: int, dtype: torch.dtype) -> Tensor:
    """`[vocab]`; expected numbers may be wrong, which is what the check is for, but what is computed with may not."""
    probs = torch.tensor(values, dtype=torch.float64)
    if probs.shape != (vocab,) or not (bool((probs >= 0).all()) and abs(float(probs.sum()) - 1) <= SUM_TOLERANCE):
        raise ValueError(f"{name} is not a distribution over {vocab} tokens")
    return probs.to(dtype)


def _tokens(name: str, values: list[int], vocab: int) -> tuple[int, ...]:
    if not isinstance(values, list) or any(type(token) is not int or not 0 <= token < vocab for token in values):
        raise ValueError(f"{name} {values!r} is not a list of tokens below {vocab}")
    return tuple(values)


def _known(name: str, known: Collection[str]) -> str:
    if name not in known:
        raise ValueError(f"{name!r} is none of {', '.join(known)}")
    return name


def case_tree(case: dict[str, Any], dtype: torch.dtype) -> tuple[DraftTree, Tensor, dict[tuple[int, ...], int]]:
    """The tree of a case, its target distributions `[nodes, vocab]`, and the node of each prefix."""
    vocab = case["V"]
    if not case["branches"]:
        raise ValueError("branches is empty")
    paths = [_tokens("path", path, vocab) for path in (case["trunk"], *case["branches"])]
    topology, tokens = build_topology(paths[0], paths[1:])
    copied = add_chain(topology, tokens, _tokens("copied", case.get("copied", []), vocab))
    prefixes = {prefix_of(topology, tokens, node): node for node in range(len(topology))}
    given = {tuple(node["prefix"]): node for node in case["nodes"]}
    target = [_distribution(f"p of node {list(prefix)}", given[prefix]["p"], vocab, dtype) for prefix in prefixes]
    draft = [
        _distribution(f"q of node {list(prefix)}", given[prefix]["q"], vocab, dtype)
        for prefix, node in prefixes.items()
        if topology.children[node]
    ]
    draft_probs = torch.stack(draft) if draft else torch.empty(0, vocab, dtype=dtype)
    return DraftTree(topology, torch.tensor(tokens), draft_probs, copied=copied), torch.stack(target), prefixes


def drafts_of(distributions: NodeDistributions, tokens: Sequence[int]) -> Drafts:
    """Tokens that were drafted at row 0."""
    target, draft = distributions.at([0] * len(tokens), tokens)
    return Drafts(0, tuple(tokens), tuple(target), tuple(draft))


def output_distribution(solver: Solver, distributions: NodeDistributions, tokens: Sequence[int]) -> Tensor:
    """`[vocab]`: the solver's output distribution given its drafts, in row 0."""
    solution = solver.solve(distributions, [drafts_of(distributions, tokens)])[0]
    probs = distributions.residual(0, solution.factor, list(solution.branching), solution.proposal)
    probs = probs / probs.sum() * max(0.0, 1 - sum(solution.branching.values()))
    for token, probability in solution.branching.items():
        probs[token] = probability
    return probs


def _compare_otlp(case: dict[str, Any], dtype: torch.dtype) -> Iterator[Comparison]:
    solver, distributions = SOLVERS[_known(case["solver"], SOLVERS)], _distributions(case, dtype)
    tokens = _tokens("tokens", case["tokens"], len(case["p"]))
    if not tokens:
        raise ValueError("tokens is empty")
    yield _comparison(case["solver"], output_distribution(solver, distributions, tokens), case["law"])
    rate = solver.acceptance(distributions, [(0, len(tokens))])[0]
    if rate is not None and case.get("acceptance") is not None:
        yield _comparison(f"{case['solver']} rate", rate, case["acceptance"])


def _compare_acceptance(case: dict[str, Any], dtype: torch.dtype) -> Iterator[Comparison]:
    if type(case["k"]) is not int or case["k"] < 1:
        raise ValueError(f"k is {case['k']!r}, not a number of drafts")
    for name, solver in SOLVERS.items():
        rate, expected = solver.acceptance(_distributions(case, dtype), [(0, case["k"])])[0], case["alpha"].get(name)
        if rate is not None and expected is not None:
            yield _comparison(name, rate, expected)
        bound = case["alpha"].get(f"{name}_lower_bound")
        if isinstance(solver, ProposalSolver) and bound is not None:
            yield _comparison(f"{name} plan", _proposed(solver, case, dtype), bound)
    value = case.get("khisti_first_round_value")
    if value is not None:
        distributions = _distributions(case, dtype)
        target, draft = distributions.target_probs[0].double(), distributions.draft_probs[0].double()
        yield _comparison("khisti first round", torch.minimum(target, play(target, draft, draft).probs).sum(), value)


def _proposed(solver: ProposalSolver, case: dict[str, Any], dtype: torch.dtype) -> float:
    """`sum min(p, r)`: the chance that the draft which the solver's plan chooses is accepted itself."""
    distributions, count = _distributions(case, dtype), case["k"]
    probs = distributions.draft_probs[0] if count == 1 else solver.make_plans(distributions, 0, [count])[count].probs
    return float(torch.minimum(distributions.target_probs[0].double(), probs.double()).sum())


def _compare_tree(case: dict[str, Any], dtype: torch.dtype) -> Iterator[Comparison]:
    tree, target, nodes = case_tree(case, dtype)
    for name, result in case["results"].items():
        verifier, expected = VERIFIERS[_known(name, VERIFIERS)], torch.zeros_like(target)
        for prefix, row in result["outcome"]:
            if len(row) != case["V"]:
                raise ValueError(f"outcome of {name} has {len(row)} numbers, not {case['V']}")
            expected[nodes[tuple(prefix)]] = torch.tensor(row, dtype=dtype)
        yield _comparison(name, verifier.distribution(tree, target), expected)
        yield _comparison(f"{name} tokens", verifier.expected_tokens(tree, target), result["expected"])


def _distributions(case: dict[str, Any], dtype: torch.dtype) -> NodeDistributions:
    vocab = len(case["p"])
    return NodeDistributions(*(_distribution(name, case[name], vocab, dtype)[None] for name in "pq"))


def _comparison(algorithm: str, computed: Tensor | float, expected: Tensor | Sequence[float] | float) -> Comparison:
    found, wanted = (torch.as_tensor(value, dtype=torch.float64).reshape(-1) for value in (computed, expected))
    if found.shape != wanted.shape:
        raise ValueError(f"{algorithm} has {len(wanted)} numbers, not {len(found)}")
    return algorithm, found, wanted
