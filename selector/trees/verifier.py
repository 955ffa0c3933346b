"""The protocol of a verifier: accept a node of a drafted tree and draw one bonus token, losslessly."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from selector.trees.draft_tree import DraftTree


class Verification(NamedTuple):
    """The accepted node (its depth is `tau`) and the bonus token that follows it."""

    node: int
    bonus: int


class Verifier(Protocol):
    """`target_probs` is `[nodes, vocab]`: the target's warped law after each node. Inputs are never changed."""

    name: str

    def verify(self, tree: DraftTree, target_probs: Tensor, generator: torch.Generator | None) -> Verification:
        """Sample the outcome."""
        ...

    def outcome(self, tree: DraftTree, target_probs: Tensor) -> Tensor:
        """`[nodes, vocab]`: probability of (accepted node, bonus token) given the tree; sums to 1."""
        ...

    def expected_tokens(self, tree: DraftTree, target_probs: Tensor) -> Tensor:
        """`E[tau + 1 | tree]`, a scalar tensor."""
        ...
