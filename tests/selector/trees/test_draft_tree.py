"""Trees with a copied chain: its nodes, what is cut off, what counts as undrafted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from selector.trees.draft_tree import DraftTree
from selector.trees.topology import add_chain, build_topology


def beside(branches: Sequence[Sequence[int]], chain: Sequence[int], rows: int | None = None) -> DraftTree:
    """Drafted branches from the root and a copied chain beside them."""
    topology, tokens = build_topology([], branches)
    inner = topology.num_inner
    copied = add_chain(topology, tokens, chain)
    return DraftTree(topology, torch.tensor(tokens), torch.zeros(rows or inner, 5), copied=copied)


def test_a_chain_beside_branches() -> None:
    tree = beside([[1, 2], [3, 2], [1, 4]], [2, 3])
    assert tree.topology.children[0] == [1, 2, 1]
    assert tree.copied == (6, 7)
    assert tree.path_tokens(7) == [2, 3]
    assert tree.copied_children == {0: 6, 6: 7}
    assert tree.topology.depths[6:] == [1, 2]
    assert tree.mixed


def test_drafts_equal_to_copied_tokens_are_its_nodes() -> None:
    tree = beside([[1, 2], [3, 2]], [3, 4, 0])
    assert tree.copied == (2, 5, 6)
    assert tree.topology.children == [[1, 2], [3], [4], [], [], [], []]
    assert tree.mixed


def test_trunks() -> None:
    assert not beside([[], []], [3, 4]).mixed
    assert beside([[], []], [3, 4]).copied == (1, 2)
    assert beside([[1]], []).copied_children == {}
    assert not beside([[1]], []).mixed


@pytest.mark.parametrize(("nodes", "kept"), [([2], (2,)), ([0], ()), ([6], (2, 5, 6)), ([5], (2, 5)), ([1], (2, 5, 6))])
def test_a_cut_ends_the_chain(nodes: list[int], kept: tuple[int, ...]) -> None:
    tree = beside([[1, 2], [3, 2]], [3, 4, 0])
    cut = tree.cut(nodes)
    assert cut.copied == kept
    assert all(cut.topology.children[node] == [] for node in nodes)
    assert cut.topology.parents == tree.topology.parents
    assert tree.copied == (2, 5, 6)


def test_undrafted_leaves_out_the_chain() -> None:
    tree = beside([[1, 2], [3, 2]], [3, 4, 0])
    assert tree.undrafted == 0
    tree.topology.children[1] = []
    assert tree.undrafted == 1
    tree.topology.children[2] = []
    assert tree.undrafted == 1
    assert beside([[], []], [3, 4], rows=2).undrafted == 0
