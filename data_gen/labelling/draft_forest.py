"""Drawings that label every action at once: `s` super-trees below each of some roots, drafted together in one trie.

A super-tree is a trunk of `L1max + L2max` tokens with `Kmax - 1` more branches of `L2max` tokens at each trunk
position `0 .. L1max`; the trunk's own continuation is one more i.i.d. branch there. All branches of all super-trees
of all roots advance together, one draft pass a level over the distinct nodes; equal prefixes below a root are one
node, also between super-trees, which at low temperature leaves a fraction of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from data_gen.labelling.forest import DraftPath, Forest
from selector.distributions import Sampling, quantile, refuse_undefined, warp
from selector.engine.drafting import DraftRoot
from selector.engine.language_model import LanguageModel
from selector.trees.expansion import Expansion


def inner_nodes(limits: Expansion) -> int:
    """Nodes of one super-tree from which something is drawn, when no two branches share one."""
    branches, trunk, length = limits
    return max(1, trunk + length) + (branches - 1) * (trunk + 1) * max(0, length - 1)


def draw_forest(
    draft: LanguageModel,
    roots: Sequence[DraftRoot],
    limits: Expansion,
    num_samples: int,
    sampling: Sampling,
    seeds: Sequence[int],
) -> Forest:
    """Draw `num_samples` independent super-trees a root, with the draft warped by `sampling`, as at the roots.

    All that is drawn below a root comes from its own seed, whatever other roots there are. The drafted rows stay
    pending: the caller keeps what belongs to the context. The last level is drawn and not drafted from. Raises
    UserError where the draft has no distribution: labels of trees that are cut there would not be those of the action.
    """
    trunks, branches = [], []
    for root, seed in enumerate(seeds):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(num_samples):
            trunk, extra = _draw_paths(root, limits, generator)
            trunks.append(trunk)
            branches.append(extra)
    paths = trunks + [path for tree in branches for position in tree for path in position]
    builder = _Builder(draft, roots, sampling)
    for depth in range(1, limits.max_depth + 1):
        builder.advance([path for path in paths if path.runs(depth)], depth)
        if depth < limits.max_depth:
            builder.draft_level(sorted({path.end for path in paths if path.runs(depth + 1)}))
    return Forest(
        limits, len(roots), builder.parents, builder.tokens, torch.cat(builder.probs), builder.rows,
        trunks, branches, draft.support,
    )  # fmt: skip


def _draw_paths(root: int, limits: Expansion, generator: torch.Generator) -> tuple[DraftPath, list[list[DraftPath]]]:
    """A trunk, and the extra branches at each of its positions."""
    branches, trunk_length, length = limits
    count = 1 + (branches - 1) * (trunk_length + 1)
    uniform = iter(torch.rand(count, limits.max_depth, dtype=torch.float64, generator=generator).tolist())
    trunk = DraftPath(root, None, 0, limits.max_depth, next(uniform))
    extra = [
        [DraftPath(root, trunk, start, length, next(uniform)) for _ in range(branches - 1)]
        for start in range(trunk_length + 1)
    ]
    return trunk, extra


class _Builder:
    """The trie, and the draft's pending rows and distributions of its nodes."""

    def __init__(self, draft: LanguageModel, roots: Sequence[DraftRoot], sampling: Sampling) -> None:
        self.draft, self.sampling = draft, sampling
        self.parents = [-1] * len(roots)
        self.tokens = [root.token for root in roots]
        self.probs: list[Tensor] = []
        self.rows = list(range(len(roots)))
        self.pending = {node: root.row for node, root in enumerate(roots)}
        self.next_row = max(root.row for root in roots) + 1
        self.index: dict[tuple[int, int], int] = {}
        self._add(torch.cat([root.probs[-1:] for root in roots]))

    def _add(self, probs: Tensor) -> None:
        refuse_undefined(probs, "draft")
        self.probs.append(probs)

    def advance(self, paths: list[DraftPath], depth: int) -> None:
        """Each path draws one token from the distribution at its end; equal tokens below one node are one node."""
        offset = sum(map(len, self.probs[:-1]))  # all ends of a level lie in the last block
        ends = [path.end for path in paths]
        device = self.draft.device
        rows = torch.tensor([self.rows[node] - offset for node in ends], device=device)
        uniform = [path.uniform[depth - path.start - 1] for path in paths]
        columns = quantile(self.probs[-1], torch.tensor(uniform, dtype=torch.float64, device=device), rows)
        drawn = columns if self.draft.support is None else self.draft.support[columns]
        for path, end, token in zip(paths, ends, drawn.tolist(), strict=True):
            path.nodes.append(self._child(end, token))

    def _child(self, parent: int, token: int) -> int:
        node = self.index.get((parent, token))
        if node is None:
            node = self.index[parent, token] = len(self.tokens)
            self.parents.append(parent)
            self.tokens.append(token)
            self.rows.append(-1)
        return node

    def draft_level(self, nodes: list[int]) -> None:
        """One draft pass over the distinct nodes of a level from which something is drawn next."""
        tokens = torch.tensor([self.tokens[node] for node in nodes], device=self.draft.device)
        scores = self.draft.extend(tokens, [self.pending[self.parents[node]] for node in nodes])
        first = sum(map(len, self.probs))
        for place, node in enumerate(nodes):
            self.pending[node] = self.next_row + place
            self.rows[node] = first + place
        self.next_row += len(nodes)
        self._add(warp(scores.logits, self.sampling))
