"""Drafting a delayed tree: one draft pass a level over the distinct nodes of that level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from selector.distributions import Sampling, draw, warp
from selector.engine.language_model import LanguageModel
from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Expansion
from selector.trees.topology import Topology


@dataclass
class Root:
    """The draft at a step's start.

    Attributes:
        token: the root token, the last token of the context.
        row: the draft's pending row of the root token.
        laws: `[rows, columns]`: the draft's warped laws over its own columns; the last row is the root's, and
            when the pass covered the token before the root token too, the row before is that token's.
        logits, hidden: `[rows, columns]` and `[rows, hidden_size]`, likewise.
    """

    token: int
    row: int
    laws: Tensor
    logits: Tensor
    hidden: Tensor


def start_root(draft: LanguageModel, tokens: Sequence[int], sampling: Sampling) -> Root:
    """Run the `tokens` that the draft's cache lacks in one pass; the last of them is the root token."""
    ids = torch.tensor(list(tokens), device=draft.device)
    scores = draft.extend(ids, range(-1, len(ids) - 1), last_rows=min(2, len(ids)))
    return Root(int(tokens[-1]), len(ids) - 1, warp(scores.logits, sampling), scores.logits, scores.hidden)


def draft_tree(
    draft: LanguageModel, root: Root, expansion: Expansion, sampling: Sampling, generator: torch.Generator | None
) -> DraftTree:
    """Draw a trunk and its branches; equal tokens below one node are one node (see `Topology.children`).

    Every branch draws its next token from the law row of its own node, so the draws are i.i.d. given the node.
    Node `u` above the deepest level becomes the draft's pending row `root.row + u`; the deepest level is not
    run. Raises nothing of its own.
    """
    _, trunk, length = expansion
    topology = Topology()
    tokens = [torch.tensor([root.token], device=draft.device)]
    laws, hidden = [root.laws[-1:]], [root.hidden[-1:]]
    level, counts = [0], [expansion.num_branches if trunk == 0 else 1]
    for depth in range(trunk + length):
        if depth > 0:
            parents = [root.row + topology.parents[node] for node in level]
            scores = draft.extend(tokens[-1], parents)
            laws.append(warp(scores.logits, sampling))
            hidden.append(scores.hidden)
        drawn = _draw_tokens(draft, laws[-1], counts, generator)
        level, counts, new_tokens = _add_level(topology, level, counts, drawn)
        tokens.append(torch.tensor(new_tokens, device=draft.device))
        if depth + 1 == trunk:
            counts = [expansion.num_branches]
    inner = trunk + length > 0
    return DraftTree(
        topology=topology,
        tokens=torch.cat(tokens),
        draft_probs=dense_laws(draft, torch.cat(laws) if inner else root.laws[:0]),
        support=draft.support,
        draft_hidden=torch.cat(hidden) if inner else root.hidden[:0],
    )


def dense_laws(draft: LanguageModel, laws: Tensor) -> Tensor:
    """`laws [rows, columns]` over the draft's own columns as `[rows, vocab]`, zero outside its support."""
    if draft.support is None:
        return laws
    return laws.new_zeros(len(laws), draft.vocab_size).index_copy_(1, draft.support, laws)


def _draw_tokens(draft: LanguageModel, laws: Tensor, counts: list[int], generator: torch.Generator | None) -> list[int]:
    """`counts[i]` draws from `laws[i]`, one after the other."""
    rows = None
    if any(count != 1 for count in counts):
        rows = torch.tensor([row for row, count in enumerate(counts) for _ in range(count)], device=laws.device)
    columns = draw(laws, generator, rows)
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
