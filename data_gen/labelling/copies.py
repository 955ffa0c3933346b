"""Labels of copied chains, alone and with drafted trees beside them; those below them are added in `below`.

A copied chain `c_1 .. c_m` needs no sampling: `E[tau + 1] = 1 + sum_d R_d`, `R_d = prod_{i<=d} p(c_i)`. Beside a
drafted tree of depth `D` the verifier's own expectation counts as far as both go; a chain that is longer adds `R_d` for
each `d > D`, since the chain is tried first and nothing is drafted below its deeper nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from torch import Tensor

from data_gen.labelling.copied_chain import CopiedChain
from selector.trees.expansion import ActionSpace, Expansion
from selector.trees.nodes import ChildLists, Subtree
from selector.trees.super_tree_view import Drawing
from selector.trees.verifier import NodesVerifier
from selector.trees.verifiers import MIXED, get_verifier


def with_copies(
    drafted: Tensor, drawing: Drawing, chain: CopiedChain | None, space: ActionSpace, verifier: str
) -> Tensor:
    """Labels of all actions, `[actions]`, float64, from those of the drafted ones.

    Where nothing can be copied, or the verifier takes no mixed tree, an action's label is that of its drafted part.
    """
    labels = drafted[list(space.drafted_parts)]
    if chain is not None:
        for action, label in enumerate(label_copies(drawing, chain, space, verifier), len(space.drafted)):
            labels[action] = labels[action] if label is None else label
    return labels


def label_copies(drawing: Drawing, chain: CopiedChain, space: ActionSpace, verifier: str) -> list[float | None]:
    """Expected tokens of a step with each of `space.copies`, but for what is drafted below the chain.

    None for a mixed tree that the verifier does not take.
    """
    reach, known = chain.reach, dict[tuple[int, Expansion], float]()

    def beside(tree: Expansion, length: int) -> float:
        if (length, tree) not in known:
            known[length, tree] = expected_beside(drawing, tree, length, verifier)
        return known[length, tree]

    labels: list[float | None] = []
    for length, tree, is_beside in space.copies:
        mixed = min(length, tree.max_depth) if is_beside else 0
        if is_beside and verifier not in MIXED:
            labels.append(None)
        else:
            first = beside(tree, mixed) if is_beside else 1.0
            labels.append(first + sum(reach[mixed + 1 : length + 1]))
    return labels


def expected_beside(drawing: Drawing, tree: Expansion, length: int, verifier: str) -> float:
    """Mean over a drawing's trees of an expansion, each with `length` copied tokens beside it."""
    chosen, root = get_verifier(verifier), drawing.trunk[0]
    assert isinstance(chosen, NodesVerifier)
    copied: Mapping[int, int] = dict(zip((root, *drawing.copied), drawing.copied[:length], strict=False))
    trees = [Subtree(lists, copied, root) for lists in drawn_trees(drawing, tree)]
    return sum(chosen.expected_among(drawing.all_nodes, tree) for tree in trees) / len(trees)


def drawn_trees(drawing: Drawing, tree: Expansion) -> list[ChildLists]:
    """The trees of an expansion in a drawing: of its first and of its last branches; of each branch for `K = 1`."""
    branches, trunk, length = tree
    if branches == 1 and length <= drawing.limits.branch_length:
        return [_lists([drawing.trunk[0], *branch[:length]]) for branch in drawing.branches[0]]
    if branches == 1:
        return [_lists(drawing.trunk[: length + 1])]
    above = _lists(drawing.trunk[: trunk + 1])
    found: list[ChildLists] = []
    for reading in drawing.readings:
        if reading.position == trunk:
            levels = reading.levels(branches)[:length]
            found.append({**above, **{node: children for level in levels for node, children in level.items()}})
    return found


def _lists(path: Sequence[int]) -> dict[int, Sequence[int]]:
    """Children along a path of single nodes."""
    return {node: (child,) for node, child in pairwise(path)}
