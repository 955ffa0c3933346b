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

CASES, COPIES = (Path(__file__).parents[2] / "data" / f"{name}_examples.json" for name in ("verification", "copying"))
TREES = json.loads(CASES.read_text())["trees"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_worked_examples(dtype):
    results = check_cases(CASES, dtype)
    assert len(results) > 190
    assert {result.algorithm for result in results} >= {*VERIFIERS, "khisti plan", "ranked plan", "khisti first round"}
    assert [result for result in results if not result.ok] == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_worked_examples_with_copies(dtype):
    results = check_cases(COPIES, dtype)
    assert len(results) == 12 * 6 * 2
    assert [result for result in results if not result.ok] == []


@pytest.mark.parametrize("case", TREES + json.loads(COPIES.read_text())["trees"], ids=lambda case: case["id"])
def test_worked_trees_on_a_device(case, device):
    """Outcomes, and bonus tokens drawn there."""
    tree, target, nodes = case_tree(case, torch.float64)
    tree.tokens, tree.draft_probs = tree.tokens.to(device), tree.draft_probs.to(device)
    for name, result in case["results"].items():
        expected = torch.zeros_like(target)
        for prefix, row in result["outcome"]:
            expected[nodes[tuple(prefix)]] = torch.tensor(row, dtype=torch.float64)
        outcome = VERIFIERS[name].distribution(tree, target.to(device))
        torch.testing.assert_close(outcome.cpu(), expected, atol=1e-9, rtol=0)
        node, bonus = VERIFIERS[name].verify(tree, target.to(device), torch.Generator(device).manual_seed(1))
        assert expected[node, bonus] > 0


@pytest.mark.parametrize("case", TREES, ids=lambda case: case["id"])
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
    with pytest.raises(UserError, match=r"^file .*cases\.json"):
        check_cases(path)


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"has no cases\.json"):
        check_cases(tmp_path / "cases.json")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"^file .*cannot be read"):
        check_cases(tmp_path)


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
        ({**EMPTY, "trees": [{"id": "a", "note": ""}]}, "case 1 of trees in .* has no 'V'"),
        ({**EMPTY, "otlp": [3]}, "case 1 of otlp in .* is damaged"),
        ({**EMPTY, "otlp": [{**OTLP, "solver": None}]}, "case 1 of otlp in .*None is none of nss, "),
        ({**EMPTY, "otlp": [{**OTLP, "p": "x"}]}, "case 1 of otlp in .* is damaged"),
        ({**EMPTY, "otlp": [OTLP, {**OTLP, "p": [0.5, 0.4]}]}, "case 2 of otlp in .*p is not a distribution"),
        ({**EMPTY, "otlp": [{**OTLP, "q": [1.5, -0.5]}]}, "q is not a distribution"),
        ({**EMPTY, "otlp": [{**OTLP, "q": [0.5, 0.25, 0.25]}]}, "q is not a distribution over 2 tokens"),
        ({**EMPTY, "otlp": [{**OTLP, "p": [0.5, float("nan")]}]}, "p is not a distribution"),
        ({**EMPTY, "otlp": [{**OTLP, "law": [0.5, [0.5]]}]}, "case 1 of otlp in .* is damaged"),
        ({**EMPTY, "otlp": [{**OTLP, "law": [0.5]}]}, "nss has 1 numbers, not 2"),
        ({**EMPTY, "otlp": [{**OTLP, "solver": "bogus"}]}, "'bogus' is none of nss, "),
        ({**EMPTY, "otlp": [{**OTLP, "tokens": [2]}]}, r"tokens \[2\] is not a list of tokens below 2"),
        ({**EMPTY, "otlp": [{**OTLP, "tokens": []}]}, "tokens is empty"),
        ({**EMPTY, "acceptance": [{**RATE, "k": 0}]}, "k is 0"),
        ({**EMPTY, "acceptance": [{**RATE, "alpha": [0.5]}]}, "case 1 of acceptance in .* is damaged"),
        ({**EMPTY, "acceptance": [{**RATE, "alpha": {"nss": "x"}}]}, "case 1 of acceptance in .* is damaged"),
        (changed_tree(V="2"), "case 1 of trees in .* is damaged"),
        (changed_tree(branches=[]), "branches is empty"),
        (changed_tree(trunk=[0.5]), r"path \[0.5\] is not a list of tokens"),
        (changed_tree(branches=[[1], [1, 1]]), "case 1 of trees in .* is damaged"),
        (changed_tree(nodes={}), r"has no \(\)"),
        (changed_tree(nodes=TREE["nodes"][:1]), r"has no \(1,\)"),
        (changed_tree(nodes=[{**TREE["nodes"][0], "q": None}, TREE["nodes"][1]]), "case 1 of trees in .* is damaged"),
        (changed_tree(results={"bogus": {}}), "'bogus' is none of"),
        (changed_tree(results={"bv": {"expected": 1.0}}), "has no 'outcome'"),
        (changed_result(expected=None), "case 1 of trees in .* is damaged"),
        (changed_result(outcome=[[[0], [1.0, 0.0]]]), r"has no \(0,\)"),
        (changed_result(outcome=[[[], [1.0]]]), "outcome of bv has 1 numbers, not 2"),
        (changed_result(outcome=[3]), "case 1 of trees in .* is damaged"),
    ],
)
def test_damaged_cases_are_named(tmp_path, capsys, content, word):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=word):
        check_cases(path)
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
