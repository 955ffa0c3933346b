"""NSS, naive speculative sampling: draw from the target, and go on while the token was drafted (arXiv 2602.16994)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch

from selector.verification.node_distributions import Drafts, NodeDistributions
from selector.verification.solver import RowCount, Solution


class NSS:
    """Output distribution `p` whatever the drafts; no vocabulary work at all in decoding."""

    name = "nss"

    def solve(self, distributions: NodeDistributions, problems: Sequence[Drafts]) -> list[Solution]:
        return [Solution(dict(zip(problem.tokens, problem.target, strict=True)), 0.0) for problem in problems]

    def acceptance(self, distributions: NodeDistributions, pairs: Sequence[RowCount]) -> list[float]:
        """`sum p (1 - (1 - q)^k)`."""
        rates = {}
        for row, counts in counts_by_row(pairs).items():
            target, draft = distributions.columns(row)
            drafted = draft
            for count in range(1, max(counts) + 1):
                if count > 1:
                    drafted = drafted + draft * (1 - drafted)  # 1 - (1 - q)^k by positive sums
                if count in counts:
                    rates[row, count] = torch.dot(target, drafted)
        return values(rates, pairs)


def counts_by_row(pairs: Sequence[RowCount]) -> dict[int, set[int]]:
    """Group `(row, k)` pairs."""
    counts = defaultdict(set)
    for row, count in pairs:
        counts[row].add(count)
    return counts


def values(rates: dict[RowCount, torch.Tensor], pairs: Sequence[RowCount]) -> list[float]:
    """Scalars of all pairs in one transfer, at most 1."""
    if not rates:
        return []
    found = dict(zip(rates, torch.stack(list(rates.values())).clamp(max=1.0).tolist(), strict=True))
    return [found[pair] for pair in pairs]
