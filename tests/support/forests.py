"""A super-tree of a forest on its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from data_gen.labelling.forest import Forest
from selector.trees.topology import Topology
from tests.support.super_trees import SuperTree


def super_tree(forest: Forest, tree: int) -> tuple[SuperTree, list[int]]:
    """The super-tree, and the forest's node of each of its nodes."""
    trunk, branches = forest.trunks[tree], forest.branches[tree]
    paths = [trunk, *(path for position in branches for path in position)]
    nodes = sorted({trunk.root, *(node for path in paths for node in path.nodes)})
    number = {node: index for index, node in enumerate(nodes)}
    topology = Topology()
    for node in nodes[1:]:
        topology.add(number[forest.parents[node]])
    tokens = torch.tensor([forest.tokens[node] for node in nodes])
    probs = rows_of(forest, forest.draft_probs, nodes)
    return SuperTree(topology, tokens, probs, *forest.paths(tree, number), forest.support), nodes


def rows_of(forest: Forest, probs: Tensor, nodes: Sequence[int]) -> Tensor:
    """Rows of `probs [inner nodes, ..]` for `nodes`; zeros for nodes that have none."""
    rows = torch.tensor([forest.rows[node] for node in nodes])
    return probs[rows.clamp(min=0)].mul_((rows >= 0)[:, None])
