"""The target's distributions below places of a text: at what was drawn there, and along what could be copied there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from data_gen.labelling.copied_chain import CopiedChain, chain_rows
from data_gen.labelling.forest import Forest
from data_gen.labelling.trajectory import TextRoot, Trajectory
from selector.distributions import refuse_undefined, warp

SCORE_ROWS = 256


class Scorer:
    """Passes of the target whose rows stay pending behind a text's own, until the text is committed.

    They are cut at `SCORE_ROWS` rows, which bounds what warping needs. Raise UserError where the target has no
    distribution.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        self.target, self.sampling = trajectory.target, trajectory.sampling
        self._row = len(trajectory.tokens) - 1 - self.target.length

    def rows_of(self, roots: Sequence[TextRoot]) -> list[int]:
        """The target's pending rows of root tokens."""
        return [root.index - self.target.length for root in roots]

    def forest(self, forest: Forest, rows: Sequence[int], probs: Sequence[Tensor]) -> Tensor:
        """`[inner nodes, vocab]`; the roots' own `probs` are known, and so are their `rows`."""
        inner, known = forest.inner, len(rows)
        rows = [*rows, *range(self._row, self._row + len(inner) - known)]
        found = probs[0].new_empty(len(inner), self.target.vocab_size)
        found[:known] = torch.stack(list(probs))
        parents = [rows[forest.rows[forest.parents[node]]] for node in inner[known:]]
        self._score([forest.tokens[node] for node in inner[known:]], parents, found[known:])
        return found

    def chains(self, roots: Sequence[TextRoot], chains: Sequence[tuple[int, ...]]) -> list[CopiedChain | None]:
        """What could be copied at each root, which may be nothing."""
        tokens, parents, first = chain_rows(chains, self.rows_of(roots), self._row)
        probs = roots[0].probs.new_empty(len(tokens), self.target.vocab_size)
        self._score(tokens, parents, probs)
        parts = torch.split(probs, [len(chain) for chain in chains])
        return [
            CopiedChain(chain, torch.cat([root.probs[None], part]), row) if chain else None
            for root, chain, part, row in zip(roots, chains, parts, first, strict=True)
        ]

    def _score(self, tokens: list[int], parents: list[int], found: Tensor) -> None:
        for start in range(0, len(tokens), SCORE_ROWS):
            part = slice(start, start + SCORE_ROWS)
            ids = torch.tensor(tokens[part], device=self.target.device)
            found[part] = warp(self.target.extend(ids, parents[part]).logits, self.sampling)
        refuse_undefined(found, "target")
        self._row += len(tokens)
