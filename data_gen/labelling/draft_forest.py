"""Drawings that label every action at once: `s` super-trees below each of some roots, drafted together in one trie.

A super-tree is a trunk of `L1max + L2max` tokens with `Kmax - 1` more branches of `L2max` tokens at each trunk
position `0 .. L1max`; the trunk's own continuation is one more i.i.d. branch there. All branches of all super-trees
of all roots advance together, one draft pass a level over the distinct nodes; equal prefixes below a root are one
node, also between super-trees, which at low temperature leaves a fraction of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from data_gen.labelling.forest import Forest, Walk
from selector.distributions import Sampling, quantile, warp
from selector.engine.drafting import Root
from selector.engine.language_model import LanguageModel
from selector.trees.expansion import Expansion


def inner_nodes(limits: Expansion) -> int:
    """Nodes of one super-tree with a law, when no two branches share one."""
    branches, trunk, length = limits
    return max(1, trunk + length) + (branches - 1) * (trunk + 1) * max(0, length - 1)


def draw_forest(
    draft: LanguageModel,
    roots: Sequence[Root],
    limits: Expansion,
    num_samples: int,
    sampling: Sampling,
    seeds: Sequence[int],
) -> Forest:
    """Draw `num_samples` independent super-trees a root with the draft's law warped by `sampling`, as its laws are.

    All that is drawn below a root comes from its own seed, whatever other roots there are. The drafted rows stay
    pending: the caller keeps what belongs to the context. The last level is drawn and not drafted from.
    """
    trunks, branches = [], []
    for root, seed in enumerate(seeds):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(num_samples):
            trunk, extra = _walks(root, limits, generator)
            trunks.append(trunk)
            branches.append(extra)
    walks = trunks + [walk for tree in branches for position in tree for walk in position]
    builder = _Builder(draft, roots, sampling)
    for depth in range(1, limits.max_depth + 1):
        builder.advance([walk for walk in walks if walk.runs(depth)], depth)
        if depth < limits.max_depth:
            builder.draft_level(sorted({walk.end for walk in walks if walk.runs(depth + 1)}))
    laws = torch.cat(builder.laws)
    return Forest(
        limits, len(roots), builder.parents, builder.tokens, laws, builder.law_rows,
        trunks, branches, draft.support, draft.vocab_size,
    )  # fmt: skip


def _walks(root: int, limits: Expansion, generator: torch.Generator) -> tuple[Walk, list[list[Walk]]]:
    """A trunk, and the extra branches at each of its positions."""
    branches, trunk_length, length = limits
    count = 1 + (branches - 1) * (trunk_length + 1)
    uniform = iter(torch.rand(count, limits.max_depth, dtype=torch.float64, generator=generator).tolist())
    trunk = Walk(root, None, 0, limits.max_depth, next(uniform))
    extra = [
        [Walk(root, trunk, start, length, next(uniform)) for _ in range(branches - 1)]
        for start in range(trunk_length + 1)
    ]
    return trunk, extra


class _Builder:
    """The trie, and the draft's rows and laws of its nodes."""

    def __init__(self, draft: LanguageModel, roots: Sequence[Root], sampling: Sampling) -> None:
        self.draft, self.sampling = draft, sampling
        self.parents = [-1] * len(roots)
        self.tokens = [root.token for root in roots]
        self.laws = [torch.cat([root.laws[-1:] for root in roots])]
        self.law_rows = list(range(len(roots)))
        self.pending = {node: root.row for node, root in enumerate(roots)}
        self.next_row = max(root.row for root in roots) + 1
        self.index: dict[tuple[int, int], int] = {}

    def advance(self, walks: list[Walk], depth: int) -> None:
        """Each walk draws one token from the law of its own end; equal tokens below one node are one node."""
        offset = sum(map(len, self.laws[:-1]))  # all ends of a level lie in the last block of laws
        ends = [walk.end for walk in walks]
        device = self.draft.device
        rows = torch.tensor([self.law_rows[node] - offset for node in ends], device=device)
        uniform = [walk.uniform[depth - walk.start - 1] for walk in walks]
        columns = quantile(self.laws[-1], torch.tensor(uniform, dtype=torch.float64, device=device), rows)
        drawn = columns if self.draft.support is None else self.draft.support[columns]
        for walk, end, token in zip(walks, ends, drawn.tolist(), strict=True):
            walk.nodes.append(self._child(end, token))

    def _child(self, parent: int, token: int) -> int:
        node = self.index.get((parent, token))
        if node is None:
            node = self.index[parent, token] = len(self.tokens)
            self.parents.append(parent)
            self.tokens.append(token)
            self.law_rows.append(-1)
        return node

    def draft_level(self, nodes: list[int]) -> None:
        """One draft pass over the distinct nodes of a level from which something is drawn next."""
        tokens = torch.tensor([self.tokens[node] for node in nodes], device=self.draft.device)
        scores = self.draft.extend(tokens, [self.pending[self.parents[node]] for node in nodes])
        first_law = sum(map(len, self.laws))
        for place, node in enumerate(nodes):
            self.pending[node] = self.next_row + place
            self.law_rows[node] = first_law + place
        self.next_row += len(nodes)
        self.laws.append(warp(scores.logits, self.sampling))
