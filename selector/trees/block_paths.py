"""Which single path through a tree block verification runs on, and the law of its next token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from selector.verification.node_distributions import Drafts, NodeLaws
from selector.verification.proposal import Choice, choices
from selector.verification.ranked import Ranked
from selector.verification.ranking import rankings

ChildLists = Mapping[int, Sequence[int]]
"""Child nodes, in branch order and with multiplicity, of each node that has some; parents come first."""


class Proposal(Protocol):
    """A law of the next token that is not the draft's; equal ones are equal values."""

    def pair(self, laws: NodeLaws) -> tuple[Tensor, Tensor]:
        """Target law and this law, float64, both over the columns in one order or another."""
        ...

    def law(self, laws: NodeLaws) -> Tensor:
        """`[columns]`, in the columns' order."""
        ...

    def __hash__(self) -> int: ...


class Route(NamedTuple):
    """A random path.

    Attributes:
        chosen: probability of each child to be next, at nodes that a path can take.
        proposals: law of the next token on the path where it is not the draft's law.
        chances: what that law gives to the token of each child that may be chosen.
    """

    chosen: dict[int, dict[int, float]]
    proposals: dict[int, Proposal]
    chances: dict[int, float]


class Router(Protocol):
    """A rule whose next token, given the path so far, follows a known law."""

    def __init__(self, laws: NodeLaws, tokens: Sequence[int]) -> None: ...

    def routes(self, trees: Sequence[ChildLists]) -> list[Route]:
        """The route through each of some trees."""
        ...


class FirstBranch:
    """Block Verification: the first branch, whose tokens follow the draft's own laws."""

    def __init__(self, laws: NodeLaws, tokens: Sequence[int]) -> None:
        pass

    def routes(self, trees: Sequence[ChildLists]) -> list[Route]:
        return [Route({node: {children[0]: 1.0} for node, children in lists.items()}, {}, {}) for lists in trees]


class GreedyLaw(NamedTuple):
    """Law of the best-ranked next token at a row, given the path so far.

    With `A` = draft mass of branches ranked below it and `J` = mass through it,

        r(x) = q(x) sum_{i<K} hi^i lo^(K-1-i) / sum_{i<K} (A / (A+J))^(K-1-i),
        lo = (A + J F(x)) / (A+J), hi = (A + J (F(x) + q(x))) / (A+J), F(x) = draft mass ranked below x.
    """

    row: int
    branches: int
    worse: float
    through: float

    def at(self, below: float, draft: float) -> float:
        """`r` of a token, from `F` and `q` there."""
        total = self.worse + self.through
        low, high = (self.worse + self.through * below) / total, (self.worse + self.through * (below + draft)) / total
        return self._scale() * draft * sum(high**i * low ** (self.branches - 1 - i) for i in range(self.branches))

    def pair(self, laws: NodeLaws) -> tuple[Tensor, Tensor]:
        ranking = rankings(laws, [self.row])[self.row]
        total = self.worse + self.through
        low = (ranking.mass[:-1] * (self.through / total)).add_(self.worse / total)
        high = torch.add(low, ranking.draft, alpha=self.through / total)
        term, law = low, low + high
        for _ in range(self.branches - 2):
            term = term * low
            law = torch.addcmul(term, law, high)
        return ranking.target, law.mul_(ranking.draft).mul_(self._scale())

    def law(self, laws: NodeLaws) -> Tensor:
        return self.pair(laws)[1].index_select(0, rankings(laws, [self.row])[self.row].position)

    def _scale(self) -> float:
        share = self.worse / (self.worse + self.through)
        return 1 / sum(share**power for power in range(self.branches))


class Look(NamedTuple):
    """Of each child's token: its rank, the draft mass ranked below it, its own."""

    rank: dict[int, float]
    below: dict[int, float]
    draft: dict[int, float]


class BestRanked:
    """GBV: at each node the child with the best `p / q` (ties by token id)."""

    def __init__(self, laws: NodeLaws, tokens: Sequence[int]) -> None:
        self.laws, self.tokens = laws, tokens
        self._children: dict[int, dict[int, None]] = {}
        self._looks: dict[int, Look] = {}

    def routes(self, trees: Sequence[ChildLists]) -> list[Route]:
        for lists in trees:
            for node, children in lists.items():
                self._children.setdefault(node, {}).update(dict.fromkeys(children))
        return [self._route(lists) for lists in trees]

    def _route(self, lists: ChildLists) -> Route:
        route = Route({}, {}, {})
        node, branches, worse, through = next(iter(lists), 0), 1, 0.0, 1.0
        while node in lists:
            branches = max(branches, len(lists[node]))
            best = lists[node][0]
            if branches > 1:
                look = self._look(node)
                best = max(lists[node], key=look.rank.__getitem__)
                proposal = GreedyLaw(node, branches, worse, through)
                route.proposals[node] = proposal
                route.chances[best] = proposal.at(look.below[best], look.draft[best])
                worse += through * look.below[best]
                through *= look.draft[best]
            route.chosen[node] = {best: 1.0}
            node = best
        return route

    def _look(self, node: int) -> Look:
        if node not in self._looks:
            children = list(self._children[node])
            ranking = rankings(self.laws, [node])[node]
            ranks = ranking.position[self.laws.columns_of([self.tokens[child] for child in children])]
            numbers = torch.stack([ranks.double(), ranking.mass[ranks], ranking.draft[ranks]]).tolist()
            self._looks[node] = Look(*(dict(zip(children, row, strict=True)) for row in numbers))
        return self._looks[node]


class PlannedLaw(NamedTuple):
    """Law of the token that the Ranked solver's rule chooses among some drafts."""

    row: int
    drafts: int

    def pair(self, laws: NodeLaws) -> tuple[Tensor, Tensor]:
        return laws.columns(self.row)[0].double(), self.law(laws)

    def law(self, laws: NodeLaws) -> Tensor:
        return Ranked().plans(laws, [(self.row, self.drafts)])[self.row, self.drafts].law


class RankedRule:
    """RBV: at each node the child that the Ranked solver's rule chooses among the branches through it."""

    def __init__(self, laws: NodeLaws, tokens: Sequence[int]) -> None:
        self.laws, self.tokens = laws, tokens

    def routes(self, trees: Sequence[ChildLists]) -> list[Route]:
        problems = {
            (node, tuple(children)): Drafts(node, tuple(self.tokens[child] for child in children), (), ())
            for lists in trees
            for node, children in lists.items()
            if len(children) > 1
        }
        pairs = [(node, len(children)) for node, children in problems]
        plans = Ranked().plans(self.laws, pairs)
        found = choices(self.laws, list(problems.values()), [plans[pair] for pair in pairs])
        known = dict(zip(problems, found, strict=True))
        return [self._route(lists, known) for lists in trees]

    def _route(self, lists: ChildLists, known: Mapping[tuple[int, tuple[int, ...]], Choice]) -> Route:
        route = Route({}, {}, {})
        for node, children in lists.items():
            if len(children) == 1:
                route.chosen[node] = {children[0]: 1.0}
                continue
            choice = known[node, tuple(children)]
            child_of = {self.tokens[child]: child for child in children}
            route.chosen[node] = {child_of[token]: p for token, p in choice.chosen.items() if p > 0}
            route.proposals[node] = PlannedLaw(node, len(children))
            route.chances.update((child_of[token], chance) for token, chance in choice.proposals.items())
        return route
