"""Random laws, zeros and tiny masses among them: outcomes are laws, and the output's law is the target's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Action, CopyExpansion, Expansion
from selector.trees.verifier import Verifier
from selector.trees.verifiers import BLOCKS, VERIFIERS
from tests.support.exact_worlds import World

# Delayed trees and trees with duplicates; (4, 0, 1) of two tokens always has some.
SIZES = [
    (2, Expansion(2, 1, 2)),
    (2, Expansion(3, 1, 1)),
    (2, Expansion(4, 0, 1)),
    (2, Expansion(2, 0, 2)),
    (3, Expansion(2, 1, 1)),
    (3, Expansion(3, 0, 1)),
    (4, Expansion(2, 0, 1)),
]
COPIES = [
    (3, CopyExpansion(1, Expansion(2, 0, 1))),
    (2, CopyExpansion(2, Expansion(2, 0, 1))),
    (3, CopyExpansion(2, Expansion(2, 0, 1), beside=True)),
    (3, CopyExpansion(1, Expansion(3, 0, 1), beside=True)),
    (2, CopyExpansion(3, Expansion(2, 0, 2), beside=True)),
    (4, CopyExpansion(2, Expansion(1, 0, 2), beside=True)),
]
PATHS = [block.name for block in BLOCKS]
MASSES = st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 7.0, 1e-3, 1e-9])


class DrawnWorld(World):
    """Laws drawn by hypothesis as they are asked for; some are the other model's own."""

    def __init__(self, vocab: int, data: st.DataObject) -> None:
        super().__init__(vocab)
        self.data = data

    def law(self, kind: str, prefix: tuple[int, ...]) -> Tensor:
        if (kind, prefix) not in self._laws:
            other = self._laws.get(("draft" if kind == "target" else "target", prefix))
            if other is not None and self.data.draw(st.integers(0, 4), label=f"{kind} {prefix} differs") == 0:
                self._laws[kind, prefix] = other.clone()
            else:
                drawn = st.lists(MASSES, min_size=self.vocab, max_size=self.vocab).filter(any)
                masses = torch.tensor(self.data.draw(drawn, label=f"{kind} {prefix}"), dtype=torch.float64)
                self._laws[kind, prefix] = masses / masses.sum()
        return self._laws[kind, prefix]


class InSingle:
    """A verifier that is handed float32 laws."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier

    def distribution(self, tree: DraftTree, target_probs: Tensor) -> Tensor:
        tree = replace(tree, draft_probs=tree.draft_probs.float())
        return self.verifier.distribution(tree, target_probs.float()).double()


@pytest.mark.parametrize("name", VERIFIERS)
@given(size=st.sampled_from(SIZES), data=st.data())
@settings(max_examples=15, deadline=None, derandomize=True)
def test_random_laws(name: str, size: tuple[int, Action], data: st.DataObject) -> None:
    hold(name, *size, data)


@pytest.mark.parametrize("name", VERIFIERS)
@given(size=st.sampled_from(COPIES), data=st.data())
@settings(max_examples=15, deadline=None, derandomize=True)
def test_random_laws_with_copies(name: str, size: tuple[int, CopyExpansion], data: st.DataObject) -> None:
    vocab, action = size
    hold(name, vocab, action._replace(beside=action.beside and name not in PATHS), data)


def hold(name: str, vocab: int, action: Action, data: st.DataObject) -> None:
    """Assert all that must hold of one action in a world that `data` makes up."""
    world, verifier = DrawnWorld(vocab, data), VERIFIERS[name]
    total = 0.0
    for weight, tree, target in world.trees(action):
        outcome = verifier.distribution(tree, target)
        assert bool(outcome.isfinite().all())
        assert bool((outcome >= 0).all())
        assert float(outcome.sum()) == pytest.approx(1, abs=1e-12)
        assert not bool(outcome[target == 0].any())
        total += weight
    assert total == pytest.approx(1, abs=1e-12)
    assert world.gap(verifier, action) < 1e-12
    assert world.gap(InSingle(verifier), action) < 1e-6
