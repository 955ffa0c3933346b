"""A drafted tree: its shape, its tokens, and the very laws that they were drawn from."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from selector.trees.topology import Topology


@dataclass
class DraftTree:
    """What drafting hands to scoring and verification.

    Attributes:
        topology: nodes in breadth-first order, equal prefixes merged.
        tokens: `[nodes]`, int64; `tokens[0]` is the root token (the last token of the context).
        draft_probs: `[inner nodes, vocab]`, float32 or wider: row `u` is the law that each entry of
            `topology.children[u]` was drawn from, independently.
        support: `[columns]`, int64, tokens outside which every draft law is zero; None when not known.
        draft_hidden: `[inner nodes, hidden_size]`, the draft's last hidden states; None when not kept.
    """

    topology: Topology
    tokens: Tensor
    draft_probs: Tensor
    support: Tensor | None = None
    draft_hidden: Tensor | None = None

    def path_tokens(self, node: int) -> list[int]:
        """Drafted tokens from the root (left out) to `node`."""
        return [int(token) for token in self.tokens[self.topology.path(node)].tolist()]
