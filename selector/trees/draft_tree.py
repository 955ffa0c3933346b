"""Drafted tree: its shape, its tokens, and the very distributions that they were drawn from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from selector.trees.topology import Topology


@dataclass
class DraftTree:
    """A tree as drafting hands it to scoring and verification.

    Attributes:
        topology: nodes in breadth-first order, equal prefixes merged.
        tokens: `[nodes]`, int64; `tokens[0]` is the root token (the last token of the context).
        draft_probs: of the nodes above the deepest level, float32 or wider: row `u` is the distribution that each entry
            of `topology.children[u]` was drawn from, independently. A row that is no distribution has no children.
        support: `[columns]`, int64, ascending: the tokens of the columns; None when they are the vocabulary.
        draft_hidden: `[inner nodes, hidden_size]`, the draft's last hidden states; None when not kept.
    """

    topology: Topology
    tokens: Int[Tensor, " nodes"]
    draft_probs: Float[Tensor, "drafted columns"]
    support: Int[Tensor, " columns"] | None = None
    draft_hidden: Float[Tensor, "inner hidden"] | None = None

    @property
    def undrafted(self) -> int:
        """Number of nodes whose draft row was no distribution, so that nothing was drafted below them."""
        return len(self.draft_probs) - self.topology.num_inner

    def cut(self, nodes: Collection[int]) -> DraftTree:
        """The tree without what hangs below `nodes`; what is cut off keeps its place and is no child of anything."""
        children: list[list[int]] = []
        bare: set[int] = set()
        for node, parent in enumerate(self.topology.parents):
            if node in nodes or parent in bare:
                bare.add(node)
            children.append([] if node in bare else self.topology.children[node])
        return replace(self, topology=replace(self.topology, children=children))

    def path_tokens(self, node: int) -> list[int]:
        """Drafted tokens from the root (left out) to `node`."""
        return [int(token) for token in self.tokens[self.topology.path(node)].tolist()]
