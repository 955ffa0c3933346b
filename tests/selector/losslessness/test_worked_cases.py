"""The worked examples of the founding notes, and the errors of a broken file."""

import json
from pathlib import Path

import pytest
import torch

from selector.cli.main import main
from selector.errors import UserError
from selector.losslessness.worked_cases import case_tree, check_cases
from selector.trees.efficiency import ESTIMATORS
from selector.trees.expansion import Expansion
from selector.trees.super_tree_view import Reading
from selector.trees.topology import prefix_of
from selector.trees.verifiers import VERIFIERS
from tests.support.super_trees import SuperTree

CASES = Path(__file__).parents[2] / "data" / "verification_examples.json"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_worked_examples(dtype):
    results = list(check_cases(CASES, dtype))
    assert len(results) > 190
    assert {result.algorithm for result in results} >= {*VERIFIERS, "khisti plan", "ranked plan", "khisti first round"}
    assert [result for result in results if not result.ok] == []


@pytest.mark.parametrize("case", json.loads(CASES.read_text())["trees"], ids=lambda case: case["id"])
def test_worked_trees_on_a_device(case, device):
    """Outcomes, and bonus tokens drawn there."""
    tree, target, nodes = case_tree(case, torch.float64)
    tree.tokens, tree.draft_probs = tree.tokens.to(device), tree.draft_probs.to(device)
    for name, result in case["results"].items():
        expected = torch.zeros_like(target)
        for prefix, row in result["outcome"]:
            expected[nodes[tuple(prefix)]] = torch.tensor(row, dtype=torch.float64)
        outcome = VERIFIERS[name].outcome(tree, target.to(device))
        torch.testing.assert_close(outcome.cpu(), expected, atol=1e-9, rtol=0)
        node, bonus = VERIFIERS[name].verify(tree, target.to(device), torch.Generator(device).manual_seed(1))
        assert expected[node, bonus] > 0


@pytest.mark.parametrize("case", json.loads(CASES.read_text())["trees"], ids=lambda case: case["id"])
def test_depthwise_estimates(case):
    """The tree as the only reading of a drawing gives the integrated estimates of the examples."""
    tree, target, _ = case_tree(case, torch.float64)
    topology, limits = tree.topology, Expansion(case["K"], case["L1"], case["L2"])
    paths = [(*case["trunk"], *branch) for branch in case["branches"]]
    number = {prefix_of(topology, tree.tokens.tolist(), node): node for node in range(len(topology))}
    trunk = [number[paths[0][:depth]] for depth in range(limits.max_depth + 1)]
    branches = [[number[path[: case["L1"] + step + 1]] for step in range(case["L2"])] for path in paths]
    draft = torch.zeros_like(target)
    draft[: topology.num_inner] = tree.draft_probs[: topology.num_inner]
    super_tree = SuperTree(topology, tree.tokens, draft, trunk, [[]] * case["L1"] + [branches])
    drawing = super_tree.drawing(target, limits)
    drawing.readings = [Reading(case["L1"], trunk[case["L1"]], branches)] if case["K"] > 1 and case["L2"] else []
    drawing.chain_nodes = [[node] for node in trunk[:-1]]
    compared = 0
    for name, result in case["results"].items():
        expected = result.get("by_depth_integrated")
        if expected:
            estimates = ESTIMATORS[name](drawing)
            below = estimates.trees.get((case["K"], case["L1"]), estimates.chain[case["L1"] :])
            assert [1.0, *estimates.chain[: case["L1"]], *below] == pytest.approx(expected, abs=1e-9), name
            compared += 1
    assert compared >= 6


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 7}'])
def test_broken_file(tmp_path, text):
    path = tmp_path / "cases.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"^cases is .*cases\.json"):
        list(check_cases(path))


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        list(check_cases(tmp_path / "cases.json"))


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"^cases is .*cannot be read"):
        list(check_cases(tmp_path))


EMPTY = {"format": 1, "otlp": [], "acceptance": [], "trees": []}
OTLP = {"id": "a", "note": "", "solver": "nss", "p": [0.5, 0.5], "q": [0.5, 0.5], "tokens": [0], "law": [0.5, 0.5]}
RATE = {"id": "b", "note": "", "p": [0.5, 0.5], "q": [0.5, 0.5], "k": 1, "alpha": {"nss": 0.5}}
TREE = {
    "id": "c", "note": "", "V": 2, "trunk": [], "branches": [[1], [1]],
    "nodes": [{"prefix": [], "p": [1.0, 0.0], "q": [0.5, 0.5]}, {"prefix": [1], "p": [0.5, 0.5], "q": None}],
    "results": {"bv": {"expected": 1.0, "outcome": [[[], [1.0, 0.0]]]}},
}  # fmt: skip


def changed_tree(**changes):
    return {**EMPTY, "trees": [{**TREE, **changes}]}


def changed_result(**changes):
    return changed_tree(results={"bv": {**TREE["results"]["bv"], **changes}})


def test_a_small_file(tmp_path):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({**EMPTY, "otlp": [OTLP], "acceptance": [RATE], "trees": [TREE]}))
    assert [(result.algorithm, result.ok) for result in check_cases(path)] == [
        ("nss", True), ("nss", True), ("bv", True), ("bv tokens", True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"format": 1}, "has no list of otlp"),
        ({**EMPTY, "trees": [{"id": "a", "note": ""}]}, "case 1 of trees in .* has no V"),
        ({**EMPTY, "otlp": [3]}, "case 1 of otlp in .* is not an object"),
        ({**EMPTY, "otlp": [{**OTLP, "note": None}]}, "case 1 of otlp in .* has a note that is no text"),
        ({**EMPTY, "otlp": [{**OTLP, "p": "x"}]}, "has a p that is not a list of numbers"),
        ({**EMPTY, "otlp": [OTLP, {**OTLP, "p": [0.5, 0.4]}]}, "case 2 of otlp in .* law p .* does not sum to 1"),
        ({**EMPTY, "otlp": [{**OTLP, "q": [1.5, -0.5]}]}, "has a law q that is negative"),
        ({**EMPTY, "otlp": [{**OTLP, "q": [0.5, 0.25, 0.25]}]}, "needs 2 finite numbers in q"),
        ({**EMPTY, "otlp": [{**OTLP, "p": [0.5, float("nan")]}]}, "needs 2 finite numbers in p"),
        ({**EMPTY, "otlp": [{**OTLP, "law": [0.5, [0.5]]}]}, "needs 2 finite numbers in law"),
        ({**EMPTY, "otlp": [{**OTLP, "solver": "bogus"}]}, "solver 'bogus', which is none of nss, "),
        ({**EMPTY, "otlp": [{**OTLP, "tokens": [2]}]}, r"has tokens \[2\]"),
        ({**EMPTY, "otlp": [{**OTLP, "tokens": []}]}, r"has tokens \[\]"),
        ({**EMPTY, "acceptance": [{**RATE, "k": 0}]}, "has k 0"),
        ({**EMPTY, "acceptance": [{**RATE, "alpha": [0.5]}]}, "has no rates by solver"),
        ({**EMPTY, "acceptance": [{**RATE, "alpha": {"nss": "x"}}]}, "has 'x' for alpha of nss"),
        (changed_tree(V="2"), "has V '2'"),
        (changed_tree(branches=[]), "has a trunk or branches"),
        (changed_tree(trunk=[0.5]), "has a trunk or branches"),
        (changed_tree(branches=[[1], [1, 1]]), "has branches of different lengths"),
        (changed_tree(nodes={}), "has no list of nodes"),
        (changed_tree(nodes=TREE["nodes"][:1]), r"has no node \[1\]"),
        (
            changed_tree(nodes=[{**TREE["nodes"][0], "q": None}, TREE["nodes"][1]]),
            r"needs 2 .* in q of node \[\]",
        ),
        (changed_tree(results={"bogus": {}}), "has results of 'bogus', which is none of"),
        (changed_tree(results={"bv": {"expected": 1.0}}), "has no outcome"),
        (changed_result(expected=None), "needs a finite number in the expected tokens of bv"),
        (changed_result(outcome=[[[0], [1.0, 0.0]]]), "which is no node of its tree"),
        (changed_result(outcome=[[[], [1.0]]]), "needs 2 finite numbers in the outcome of bv"),
        (changed_result(outcome=[3]), "whose entries are not pairs"),
    ],
)
def test_damaged_cases_are_named(tmp_path, capsys, content, word):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=word):
        list(check_cases(path))
    assert main(["verify", "--cases", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1


def perturbed(place):
    """The examples with one expected number off by 1e-6."""
    cases = json.loads(CASES.read_text())
    holder = cases
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] += 1e-6
    return cases


@pytest.mark.parametrize(
    "place",
    [
        ("otlp", 0, "law", 1),
        ("otlp", 0, "acceptance"),
        ("acceptance", 3, "alpha", "spectr"),
        ("acceptance", 3, "alpha", "ranked_lower_bound"),
        ("acceptance", 3, "khisti_first_round_value"),
        ("trees", 1, "results", "traversal", "expected"),
        ("trees", 1, "results", "rbv", "outcome", 0, 1, 2),
    ],
)
def test_a_wrong_number_is_a_miss(tmp_path, capsys, place):
    path = tmp_path / "cases.json"
    cases = perturbed(place)
    kept = {kind: [cases[kind][place[1]]] if kind == place[0] else [] for kind in ("otlp", "acceptance", "trees")}
    path.write_text(json.dumps({"format": 1, **kept}))
    assert main(["verify", "--cases", str(path)]) == 1
    printed = capsys.readouterr()
    assert sum(line.startswith("MISS") for line in printed.out.splitlines()) == 1
    assert printed.err == "1 misses\n"
