"""NSS, naive speculative sampling: draw from the target, and go on while the token was drafted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch

from selector.verification.node_distributions import Drafts, NodeLaws
from selector.verification.solver import Solution


class NSS:
    """Output law `p` whatever the drafts; no vocabulary work at all in decoding."""

    name = "nss"

    def solve(self, laws: NodeLaws, problems: Sequence[Drafts]) -> list[Solution]:
        return [Solution(dict(zip(problem.tokens, problem.target, strict=True)), 0.0) for problem in problems]

    def acceptance(self, laws: NodeLaws, pairs: Sequence[tuple[int, int]]) -> list[float]:
        """`sum p (1 - (1 - q)^k)`."""
        rates = {}
        for row, counts in counts_by_row(pairs).items():
            target, draft = laws.columns(row)
            drafted = draft
            for count in range(1, max(counts) + 1):
                if count > 1:
                    drafted = drafted + draft * (1 - drafted)  # 1 - (1 - q)^k by positive sums
                if count in counts:
                    rates[row, count] = torch.dot(target, drafted)
        return values(rates, pairs)


def counts_by_row(pairs: Sequence[tuple[int, int]]) -> dict[int, set[int]]:
    """Group `(row, k)` pairs."""
    counts = defaultdict(set)
    for row, count in pairs:
        counts[row].add(count)
    return counts


def values(rates: dict[tuple[int, int], torch.Tensor], pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Scalars of all pairs in one transfer, at most 1."""
    if not rates:
        return []
    found = dict(zip(rates, torch.stack(list(rates.values())).clamp(max=1.0).tolist(), strict=True))
    return [found[pair] for pair in pairs]
