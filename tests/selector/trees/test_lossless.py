"""Losslessness by full enumeration: all trees of small worlds, for every verifier."""

import pytest
import torch

from selector.trees.expansion import Expansion
from selector.trees.verifiers import VERIFIERS
from tests.support.exact_worlds import World

# (world, expansion): three branches of two tokens hold interleaved duplicates (A.., B.., A..).
WORLDS = {
    "root branching": (World(3, seed=1), Expansion(2, 0, 2)),
    "three branches": (World(2, seed=2), Expansion(3, 0, 2)),
    "delayed": (World(2, seed=3), Expansion(3, 1, 2)),
    "delayed, long trunk": (World(2, seed=4), Expansion(2, 2, 2)),
    "one level, three tokens": (World(3, seed=5), Expansion(3, 1, 1)),
    "chain": (World(3, seed=6), Expansion(1, 0, 3)),
    "target zeros": (World(3, seed=7, zeros="t"), Expansion(3, 0, 1)),
    "draft zeros": (World(3, seed=8, zeros="d"), Expansion(2, 1, 1)),
    "both cut": (World(3, seed=9, zeros="td"), Expansion(2, 0, 2)),
    "close laws": (World(2, seed=10, closeness=1.0), Expansion(3, 0, 2)),
    "no speculation": (World(3, seed=11), Expansion(1, 0, 0)),
}


@pytest.mark.parametrize("case", WORLDS)
@pytest.mark.parametrize("name", VERIFIERS)
def test_output_law_is_the_targets(name, case):
    world, expansion = WORLDS[case]
    assert world.gap(VERIFIERS[name], expansion) < 1e-12


@pytest.mark.parametrize("name", VERIFIERS)
def test_three_tokens_and_interleaved_branches(name):
    assert World(3, seed=12, zeros="d").gap(VERIFIERS[name], Expansion(3, 0, 2)) < 1e-12


@pytest.mark.parametrize("name", VERIFIERS)
def test_outcome_is_a_law(name):
    for weight, tree, target in World(3, seed=13, zeros="td").trees(Expansion(2, 1, 1)):
        outcome = VERIFIERS[name].distribution(tree, target)
        assert weight > 0
        assert abs(float(outcome.sum()) - 1) < 1e-12
        assert bool((outcome >= 0).all())
        assert not bool(outcome[target == 0].any())
        depths = torch.tensor(tree.topology.depths) + 1
        expected = float((outcome.sum(1) * depths).sum())
        assert abs(float(VERIFIERS[name].expected_tokens(tree, target)) - expected) < 1e-12
