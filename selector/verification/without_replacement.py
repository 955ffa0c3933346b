"""Residual chain of drafts that are removed one by one, shared by Traversal Verification and RRSw.

Weng et al. 2025 (Traversal Verification), in scalar form. A rejection leads to one next state only, so the trajectory
on which everything before a node was rejected is fixed by the tree, and the distribution of the outcome is a finite
sum over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from selector.verification.node_distributions import LARGEST_FACTOR, NodeDistributions


@dataclass(slots=True)
class Visit:
    """State of a node on the trajectory on which everything before it was rejected.

    Attributes:
        row: of the node's distributions, after the round of its copied child.
        target, draft: probability of the node's own token in its parent's rows.
        copied: the copied child, which is tried first.
        children: distinct drafted children in order of first appearance. One that was copied, too, is rejected already:
            it has no target probability left, and nothing below it.
        weight: entry weight `w`, from the round of the copied child on what that left of it; 0 is a dead node, with
            everything below it.
        factors, masses: `c_i` and `Z(c_i)` after `i` rejected children; `masses` may be one shorter.
    """

    row: int
    target: float = 1.0
    draft: float = 1.0
    copied: Visit | None = None
    children: list[Visit] = field(default_factory=list)
    weight: float = 0.0
    factors: list[float] = field(default_factory=lambda: [0.0])
    masses: list[float] = field(default_factory=lambda: [1.0])

    @property
    def slack(self) -> float:
        """`1 / w - 1`, the mass that a node of weight `w` adds to each of its residuals."""
        return (1.0 - self.weight) / self.weight

    @property
    def acceptance(self) -> float:
        """Probability that the node is accepted once all its children's subtrees were rejected."""
        if self.weight == 0.0 or not self.children:
            return self.weight
        # All mass gone: an alive node (slack 0) gets here through rounding only.
        total = self.masses[-1] + self.slack
        return self.masses[-1] / total if total > 0 else 1.0

    def entry_weight(self, step: int, draft_total: float) -> float:
        """Entry weight of child `step`: `min(1, m_i (p - c_i q)_+ / ((Z(c_i) + slack) q))` at its token."""
        child = self.children[step]
        numerator = self.remaining(step, draft_total) * max(0.0, child.target - self.factors[step] * child.draft)
        denominator = (self.masses[step] + self.slack) * child.draft
        if numerator >= denominator:
            return 1.0 if numerator > 0 else 0.0
        return numerator / denominator

    def next_factor(self, step: int, draft_total: float) -> float:
        """`c_{i+1} = c_i + (Z(c_i) + slack) / m_i`; without draft mass left (one-hot) it cuts everything drafted."""
        remaining = self.remaining(step, draft_total)
        if remaining <= 0:
            return LARGEST_FACTOR
        return self.factors[step] + (self.masses[step] + self.slack) / remaining

    def remaining(self, step: int, draft_total: float) -> float:
        """Draft mass of all tokens but the first `step` distinct children, as a share of the row's sum."""
        if step == 0:
            return 1.0
        drafts = [child.draft for child in self.children]
        return max(draft_total - sum(drafts[:step]), sum(drafts[step:])) / draft_total


def copied_round(weight: float, chance: float) -> tuple[float, float]:
    """Entry weight `w p(c)` of a copied child, and what its rejection leaves of `w`: `S / (S + 1 - w)`,
    `S = sum (w p - e_c)_+ = w (1 - p(c))`.
    """
    surplus = weight * (1.0 - chance)
    total = surplus + (1.0 - weight)
    # A node of weight 1 whose copied child is sure is left through rounding only.
    return weight * chance, surplus / total if total > 0 else 1.0


def descend(distributions: NodeDistributions, roots: Sequence[Visit]) -> None:
    """Fill in weights, factors and masses below `roots` (whose weights are given), level by level.

    One vocabulary pass for each further distinct child on a level, and one at the end for all nodes' last masses.
    """
    level, seen = list(roots), []
    while level:
        below = []
        for visit in level:
            if visit.copied is not None:
                visit.copied.weight, visit.weight = copied_round(visit.weight, visit.copied.target)
                below.append(visit.copied)
        active = [visit for visit in level if visit.children and visit.weight > 0]
        seen += active
        totals = distributions.draft_totals([visit.row for visit in active if len(visit.children) > 1])
        step = 0
        while active:
            if step:
                add_masses(distributions, active)
            for visit in active:
                total = totals.get(visit.row, 1.0)
                child = visit.children[step]
                child.weight = visit.entry_weight(step, total)
                visit.factors.append(visit.next_factor(step, total))
                below.append(child)
            step += 1
            active = [visit for visit in active if len(visit.children) > step]
        level = [visit for visit in below if visit.weight > 0]
    # A node of weight 1 is accepted for sure in its turn: its last mass is not needed.
    add_masses(distributions, [visit for visit in seen if visit.weight < 1])


def add_masses(distributions: NodeDistributions, visits: Sequence[Visit]) -> None:
    """Append `Z` of the last factor where it is missing."""
    missing = [visit for visit in visits if len(visit.masses) < len(visit.factors)]
    masses = distributions.positive_mass([visit.row for visit in missing], [visit.factors[-1] for visit in missing])
    for visit, mass in zip(missing, masses, strict=True):
        visit.masses.append(mass)
