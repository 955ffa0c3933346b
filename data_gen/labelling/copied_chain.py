"""What could be copied at a root, and its nodes among those of the super-trees there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class CopiedChain:
    """Tokens that could be copied at a root, as many as the longest copy has.

    Attributes:
        tokens: `c_1 .. c_m`.
        target_probs: `[m + 1, vocab]`: the target's warped distribution before each of them, and after the last one;
            the first row is the root's.
        row: the target's pending row of the first token; those of the others follow.
    """

    tokens: tuple[int, ...]
    target_probs: Tensor
    row: int

    @cached_property
    def reach(self) -> list[float]:
        """`R_0 = 1, R_1 .. R_m`: chance that so many tokens are accepted in a row."""
        rows = torch.arange(len(self.tokens), device=self.target_probs.device)
        columns = torch.tensor(self.tokens, device=self.target_probs.device)
        return [1.0, *accumulate(self.target_probs[rows, columns].double().tolist(), mul)]


def chain_rows(
    chains: Sequence[tuple[int, ...]], above: Sequence[int], row: int
) -> tuple[list[int], list[int], list[int]]:
    """Tokens and parents of one pass over chains below the rows `above`, and the first row of each.

    `row`: the model's next pending row.
    """
    tokens: list[int] = []
    parents: list[int] = []
    first = []
    for chain, start in zip(chains, above, strict=True):
        first.append(row + len(tokens))
        parents += [start, *range(first[-1], first[-1] + len(chain) - 1)][: len(chain)]
        tokens += chain
    return tokens, parents, first


class Trie(NamedTuple):
    """Nodes of super-trees, and behind them those that only chains have.

    Attributes:
        parents, tokens: of all nodes; -1 is the parent of a root.
        chains: the chain's nodes at each root, in order.
        scored: the target's distribution `[vocab]` after chain nodes below which no super-tree draws.
    """

    parents: list[int]
    tokens: list[int]
    chains: list[list[int]]
    scored: dict[int, Tensor]


def add_chains(
    parents: Sequence[int],
    tokens: Sequence[int],
    rows: Sequence[int],
    chains: Sequence[CopiedChain | None],
    depth: int,
) -> Trie:
    """The trie of super-trees, whose nodes with a distribution have `rows` of 0 or more, with the chains in it."""
    trie = Trie(list(parents), list(tokens), [[] for _ in chains], {})
    known = {pair: node for node, pair in enumerate(zip(parents, tokens, strict=True)) if pair[0] >= 0}
    for root, chain in enumerate(chains):
        node = root
        for place, token in enumerate(chain.tokens[:depth] if chain else (), 1):
            child = known.setdefault((node, token), len(trie.tokens))
            if child == len(trie.tokens):
                trie.parents.append(node)
                trie.tokens.append(token)
            if chain and place < len(chain.tokens) and (child >= len(rows) or rows[child] < 0):
                trie.scored[child] = chain.target_probs[place]
            trie.chains[root].append(child)
            node = child
    return trie
