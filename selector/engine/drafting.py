"""Drafting a delayed tree: one draft pass a level over the distinct nodes of that level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from selector.distributions import Sampling, draw, undefined, warp
from selector.engine.language_model import LanguageModel
from selector.features import Match, Previous, RootFeatures, root_features
from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Expansion
from selector.trees.topology import Topology


@dataclass
class DraftRoot:
    """The draft at a root.

    Attributes:
        token: the root token, the last token of the context.
        row: the draft's pending row of the root token.
        probs: `[rows, columns]`: the draft's warped distributions over its own columns; the last row is the root's, and
            when the pass covered the token before the root token too, the row before is that token's.
        logits, hidden: `[rows, columns]` and `[rows, hidden_size]`, likewise.
        support: `[columns]`, the tokens of the columns; None when they are the vocabulary.
    """

    token: int
    row: int
    probs: Tensor
    logits: Tensor
    hidden: Tensor
    support: Tensor | None

    def features(
        self,
        previous: Previous | None,
        target_hidden_size: int,
        context_length: int,
        sampling: Sampling,
        match: Match | None,
    ) -> RootFeatures:
        """Features of the root after `context_length` tokens; see `root_features`."""
        return root_features(
            previous,
            draft_probs=self.probs[-1],
            draft_logits=self.logits[-1],
            draft_hidden=self.hidden[-1],
            target_hidden_size=target_hidden_size,
            context_length=context_length,
            sampling=sampling,
            match=match,
            support=self.support,
        )


def start_root(draft: LanguageModel, tokens: Sequence[int], sampling: Sampling) -> DraftRoot:
    """Run the `tokens` that the draft's cache lacks in one pass; the last of them is the root token."""
    return start_roots(draft, tokens, [len(tokens) - 1], sampling)[0]


def start_roots(
    draft: LanguageModel, tokens: Sequence[int], rows: Sequence[int], sampling: Sampling
) -> list[DraftRoot]:
    """Run the `tokens` that the draft's cache lacks in one pass, with a root token at each of the ascending `rows`."""
    first = max(0, rows[0] - 1)
    ids = torch.tensor(list(tokens), device=draft.device)
    scores = draft.extend(ids, range(-1, len(ids) - 1), last_rows=len(ids) - first)
    used = sorted({row for root in rows for row in (root - 1, root) if row >= first})
    places = torch.tensor(used, device=draft.device) - first
    logits, hidden = scores.logits[places], scores.hidden[places]
    blocks = warp(logits, sampling), logits, hidden
    ends = [used.index(root) + 1 for root in rows]
    cut = [tuple(block[max(0, end - 2) : end] for block in blocks) for end in ends]
    return [
        DraftRoot(int(tokens[root]), root, probs, logits, hidden, draft.support)
        for root, (probs, logits, hidden) in zip(rows, cut, strict=True)
    ]


def follow(draft: LanguageModel, root: DraftRoot, tokens: Sequence[int], sampling: Sampling) -> DraftRoot:
    """Run a chain of `tokens` below a root in one pass; what the draft has at its end."""
    ids = torch.tensor(list(tokens), device=draft.device)
    scores = draft.extend(ids, range(root.row, root.row + len(ids)), last_rows=1)
    blocks = warp(scores.logits, sampling), scores.logits, scores.hidden
    return DraftRoot(int(tokens[-1]), root.row + len(ids), *blocks, root.support)


def draft_tree(
    draft: LanguageModel, root: DraftRoot, expansion: Expansion, sampling: Sampling, generator: torch.Generator | None
) -> DraftTree:
    """Draw a trunk and its branches; equal tokens below one node are one node (see `Topology.children`).

    Every branch draws its next token from the distribution of its own node, so the draws are i.i.d. given the node.
    Below a node whose row is no distribution nothing is drawn: that is known from the node's own path alone, so the
    text keeps the target's law. Node `u` above the deepest level becomes the draft's pending row `root.row + u`; the
    deepest level is not run.
    """
    _, trunk, length = expansion
    topology = Topology()
    tokens = [torch.tensor([root.token], device=draft.device)]
    probs, hidden = [root.probs[-1:]], [root.hidden[-1:]]
    level, counts = [0], [expansion.num_branches if trunk == 0 else 1]
    for depth in range(trunk + length):
        if depth > 0:
            parents = [root.row + topology.parents[node] for node in level]
            scores = draft.extend(tokens[-1], parents)
            probs.append(warp(scores.logits, sampling))
            hidden.append(scores.hidden)
        for place in undefined(probs[-1]):
            counts[place] = 0
        if not any(counts):
            break
        drawn = _draw_tokens(draft, probs[-1], counts, generator)
        level, counts, new_tokens = _add_level(topology, level, counts, drawn)
        tokens.append(torch.tensor(new_tokens, device=draft.device))
        if depth + 1 == trunk:
            counts = [expansion.num_branches]
    inner = trunk + length > 0
    return DraftTree(
        topology=topology,
        tokens=torch.cat(tokens),
        draft_probs=torch.cat(probs) if inner else root.probs[:0],
        support=draft.support,
        draft_hidden=torch.cat(hidden) if inner else root.hidden[:0],
    )


def _draw_tokens(
    draft: LanguageModel, probs: Tensor, counts: list[int], generator: torch.Generator | None
) -> list[int]:
    """`counts[i]` draws from `probs[i]`, one after the other."""
    rows = None
    if any(count != 1 for count in counts):
        rows = torch.tensor([row for row, count in enumerate(counts) for _ in range(count)], device=probs.device)
    columns = draw(probs, generator, rows)
    tokens = columns if draft.support is None else draft.support[columns]
    return [int(token) for token in tokens.tolist()]


def _add_level(
    topology: Topology, level: list[int], counts: list[int], drawn: list[int]
) -> tuple[list[int], list[int], list[int]]:
    """Hang the drawn tokens below the nodes of `level`; returns the new nodes, their multiplicities and tokens."""
    nodes: list[int] = []
    new_counts: list[int] = []
    tokens: list[int] = []
    position = 0
    for parent, count in zip(level, counts, strict=True):
        known: dict[int, int] = {}
        for token in drawn[position : position + count]:
            if token in known:
                place = known[token]
                topology.children[parent].append(nodes[place])
                new_counts[place] += 1
            else:
                known[token] = len(nodes)
                nodes.append(topology.add(parent))
                new_counts.append(1)
                tokens.append(token)
        position += count
    return nodes, new_counts, tokens
