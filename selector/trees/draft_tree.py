"""Tree of drafted and copied tokens: its shape, its tokens, and the very distributions that drafts were drawn from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from selector.trees.topology import Topology


@dataclass
class DraftTree:
    """A tree as drafting hands it to scoring and verification.

    A *copied trunk* is a chain from the root with drafts below its end alone. A *mixed* tree has a node with a copied
    child that drafts were drawn at, too; a draft equal to the copied token is that very node.

    Attributes:
        topology: equal prefixes merged; breadth-first where nothing is copied.
        tokens: `[nodes]`, int64; `tokens[0]` is the root token (the last token of the context).
        draft_probs: of the nodes above the deepest level, float32 or wider: row `u` is the distribution that each entry
            of `topology.children[u]` was drawn from, independently. A row that is no distribution has no children,
            nor has a node beyond the rows.
        support: `[columns]`, int64, ascending: the tokens of the columns; None when they are the vocabulary.
        draft_hidden: `[inner nodes, hidden_size]`, the draft's last hidden states; None when not kept.
        copied: nodes of a chain of tokens copied from earlier text, the first one a child of the root. Its tokens may
            lie outside the support.
    """

    topology: Topology
    tokens: Int[Tensor, " nodes"]
    draft_probs: Float[Tensor, "drafted columns"]
    support: Int[Tensor, " columns"] | None = None
    draft_hidden: Float[Tensor, "inner hidden"] | None = None
    copied: tuple[int, ...] = ()

    @property
    def copied_children(self) -> dict[int, int]:
        """The copied child of each node that has one, along the chain."""
        return dict(zip((0, *self.copied), self.copied, strict=False))

    @property
    def mixed(self) -> bool:
        """Whether drafts were drawn at a node that has a copied child."""
        return any(self.topology.children[node] for node in self.copied_children)

    @property
    def undrafted(self) -> int:
        """Number of nodes whose draft row was no distribution, so that nothing was drafted below them.

        The root and nodes of a copied chain are left out: there it is no failure to draft nothing.
        """
        if not self.copied:
            return len(self.draft_probs) - self.topology.num_inner
        chain = {0, *self.copied}
        return sum(not self.topology.children[node] and node not in chain for node in range(len(self.draft_probs)))

    def cut(self, nodes: Collection[int]) -> DraftTree:
        """The tree without what hangs below `nodes`; what is cut off keeps its place and is no child of anything."""
        children: list[list[int]] = []
        bare: set[int] = set()
        for node, parent in enumerate(self.topology.parents):
            if node in nodes or parent in bare:
                bare.add(node)
            children.append([] if node in bare else self.topology.children[node])
        copied = tuple(child for node, child in self.copied_children.items() if node not in bare)
        return replace(self, topology=replace(self.topology, children=children), copied=copied)

    def path_tokens(self, node: int) -> list[int]:
        """Tokens from the root (left out) to `node`."""
        return [int(token) for token in self.tokens[self.topology.path(node)].tolist()]
