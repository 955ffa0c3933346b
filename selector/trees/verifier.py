"""Verifiers: accept a node of a drafted tree and draw one bonus token, losslessly.

`Verifier` is the protocol; `TreeVerifier` is what all share: given the distribution of the accepted node, sample it,
or write it out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from selector.distributions import draw
from selector.trees.draft_tree import DraftTree
from selector.trees.nodes import Nodes, Subtree, tree_nodes


class Verification(NamedTuple):
    """The accepted node (its depth is `tau`) and the bonus token that follows it."""

    node: int
    bonus: int


class Verifier(Protocol):
    """A lossless verification algorithm.

    `target_probs` are the target's warped distributions after each node. Inputs are never changed.
    """

    name: str

    def verify(
        self, tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"], generator: torch.Generator | None
    ) -> Verification:
        """Sample (accepted node, bonus token)."""
        ...

    def distribution(self, tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"]) -> Float[Tensor, "nodes vocab"]:
        """Probability of (accepted node, bonus token) given the tree; sums to 1."""
        ...

    def expected_tokens(self, tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"]) -> Float[Tensor, ""]:
        """`E[tau + 1 | tree]`."""
        ...


@dataclass(frozen=True)
class Decision:
    """The exact distribution of a verification, given the tree.

    Attributes:
        accepted: probability of nodes to be the accepted one; others have none. They sum to 1.
        bonus: row `[vocab]`, up to its sum, that the bonus token follows once a node is accepted.
    """

    accepted: Mapping[int, float]
    bonus: Callable[[int], Float[Tensor, " vocab"]]


class TreeVerifier(ABC):
    """A `Verifier` that decides by scalars: one draw of the node, then one draw from that node's row."""

    name: str

    @abstractmethod
    def decide(self, tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"]) -> Decision:
        """The distribution of the accepted node and of the bonus token; inputs are never changed."""

    def verify(
        self, tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"], generator: torch.Generator | None
    ) -> Verification:
        """Sample (accepted node, bonus token)."""
        decision = self.decide(tree, target_probs)
        chances = [decision.accepted.get(node, 0.0) for node in range(len(tree.topology))]
        accepted = torch.tensor([chances], dtype=torch.float64, device=target_probs.device)
        node = int(draw(accepted, generator))
        return Verification(node, int(draw(decision.bonus(node)[None], generator)))

    def distribution(self, tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"]) -> Float[Tensor, "nodes vocab"]:
        """Probability of (accepted node, bonus token) given the tree; sums to 1."""
        decision = self.decide(tree, target_probs)
        probs = torch.zeros_like(target_probs)
        for node, probability in decision.accepted.items():
            if probability > 0:
                row = decision.bonus(node)
                probs[node] = row / row.sum() * probability
        return probs

    def expected_tokens(self, tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"]) -> Float[Tensor, ""]:
        """`E[tau + 1 | tree]`."""
        accepted = self.decide(tree, target_probs).accepted
        tokens = sum(p * (tree.topology.depths[node] + 1) for node, p in accepted.items())
        return target_probs.new_tensor(tokens)


class NodesVerifier(TreeVerifier):
    """A verifier that decides on any tree among some nodes, which trees may share with what is computed for them."""

    @abstractmethod
    def decide_among(self, nodes: Nodes, tree: Subtree) -> Decision:
        """The distribution of the accepted node and of the bonus token."""

    def decide(self, tree: DraftTree, target_probs: Float[Tensor, "nodes vocab"]) -> Decision:
        return self.decide_among(*tree_nodes(tree, target_probs))

    def expected_among(self, nodes: Nodes, tree: Subtree) -> float:
        """`E[tau + 1 | tree]`."""
        start = nodes.depths[tree.root] - 1
        return sum(p * (nodes.depths[node] - start) for node, p in self.decide_among(nodes, tree).accepted.items())
