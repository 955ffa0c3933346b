"""Trees with a chain of copied tokens: alone, beside drafted branches, and above them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from selector.trees.draft_tree import DraftTree
from selector.trees.topology import Topology, add_chain


def beside(tree: DraftTree, chain: Sequence[int]) -> DraftTree:
    """`tree` and a copied chain from its root; drafts that are equal to the chain so far are its nodes."""
    tokens = [int(token) for token in tree.tokens.tolist()]
    copied = add_chain(tree.topology, tokens, chain)
    return replace(tree, tokens=torch.tensor(tokens, device=tree.tokens.device), copied=copied)


def below(tree: DraftTree, token: int, chain: Sequence[int]) -> DraftTree:
    """A copied chain from the root `token` on, and below its end what `tree` has below its own root."""
    above, drafted = len(chain), tree.topology
    topology = Topology(
        parents=[*range(-1, above), *(parent + above for parent in drafted.parents[1:])],
        depths=[*range(above + 1), *(depth + above for depth in drafted.depths[1:])],
        children=[*([] for _ in chain), *([child + above for child in entries] for entries in drafted.children)],
    )
    blank = tree.draft_probs.new_zeros(above, tree.draft_probs.shape[1])
    hidden = tree.draft_hidden
    return replace(
        tree,
        topology=topology,
        tokens=torch.cat([torch.tensor([token, *chain], device=tree.tokens.device), tree.tokens[1:]]),
        draft_probs=torch.cat([blank, tree.draft_probs]),
        draft_hidden=None if hidden is None else torch.cat([hidden.new_zeros(above, hidden.shape[1]), hidden]),
        copied=tuple(range(1, above + 1)),
    )
