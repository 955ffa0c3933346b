"""The worked examples of the founding notes, and the errors of a broken file."""

import json
from pathlib import Path

import pytest
import torch

from selector.errors import UserError
from selector.trees.cases import case_tree, check_cases, prefix_of
from selector.trees.drawing import Drawing, Reading
from selector.trees.efficiency import ESTIMATORS
from selector.trees.expansion import Expansion
from selector.trees.super_tree import SuperTree
from selector.trees.verifiers import VERIFIERS

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
    drawing = Drawing(super_tree, target, limits)
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


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"format": 1}, "has no list of otlp"),
        ({**EMPTY, "trees": [{"id": "a", "note": ""}]}, "case 1 of trees in .* has no V"),
        ({**EMPTY, "otlp": [3]}, "case 1 of otlp in .* is not an object"),
        ({**EMPTY, "otlp": [{**OTLP, "note": None}]}, "note of case 1 of otlp"),
        ({**EMPTY, "otlp": [{**OTLP, "p": "x"}]}, "case 'a' of .* is damaged"),
    ],
)
def test_damaged_cases_are_named(tmp_path, content, word):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=word):
        list(check_cases(path))
