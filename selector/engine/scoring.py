"""The target's distributions at every node of a drafted tree, in one pass."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from selector.distributions import Sampling, warp
from selector.engine.language_model import LanguageModel
from selector.trees.draft_tree import DraftTree


class ScoredTree(NamedTuple):
    """`target_probs [nodes, vocab]`: the target's, warped; `hidden [nodes, hidden_size]`."""

    target_probs: Tensor
    hidden: Tensor


def score_tree(target: LanguageModel, tree: DraftTree, sampling: Sampling) -> ScoredTree:
    """Run all nodes, the root included; node `u` becomes the target's pending row `u`."""
    scores = target.extend(tree.tokens, tree.topology.parents)
    return ScoredTree(warp(scores.logits, sampling), scores.hidden)
