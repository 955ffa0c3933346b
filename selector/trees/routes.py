"""Which single path through a tree block verification runs on, and the law of its next token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from selector.verification.laws import NodeLaws
from selector.verification.proposal import Plan, rank
from selector.verification.ranked import Ranked, powers

ChildLists = Mapping[int, Sequence[int]]
"""Child nodes, in branch order and with multiplicity, of each node that has some; parents come first."""


class Route(NamedTuple):
    """A random path.

    Attributes:
        chosen: probability of each child to be next, at nodes that a path can take.
        proposals: law `[columns]` of the next token on the path where it is not the draft's law.
    """

    chosen: dict[int, dict[int, float]]
    proposals: dict[int, Tensor]


class Router(Protocol):
    """A rule whose next token, given the path so far, follows a known law."""

    def __init__(self, laws: NodeLaws, tokens: Sequence[int]) -> None: ...

    def route(self, lists: ChildLists) -> Route:
        """The route through one tree."""
        ...


class FirstBranch:
    """Block Verification: the first branch, whose tokens follow the draft's own laws."""

    def __init__(self, laws: NodeLaws, tokens: Sequence[int]) -> None:
        pass

    def route(self, lists: ChildLists) -> Route:
        return Route({node: {children[0]: 1.0} for node, children in lists.items()}, {})


class BestRanked:
    """GBV: from the branching node down, always to the child with the best `p / q`.

    Given the path so far, with `A` = draft mass of branches ranked below it and `J` = mass through it,

        r(x) = q(x) sum_{i<K} hi^i lo^(K-1-i) / sum_{i<K} (A / (A+J))^(K-1-i),
        lo = (A + J F(x)) / (A+J), hi = (A + J (F(x) + q(x))) / (A+J), F(x) = draft mass ranked below x.
    """

    def __init__(self, laws: NodeLaws, tokens: Sequence[int]) -> None:
        self.laws, self.tokens = laws, tokens
        self._ranks: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def route(self, lists: ChildLists) -> Route:
        node = next(iter(lists), 0)
        chosen: dict[int, dict[int, float]] = {}
        proposals: dict[int, Tensor] = {}
        branches, worse, through = 1, 0.0, 1.0
        while node in lists:
            children = list(dict.fromkeys(lists[node]))
            branches = max(branches, len(lists[node]))
            best = children[0]
            if branches > 1:
                draft, below, position = self._ranked(node)
                columns = self.laws.columns_of([self.tokens[child] for child in children])
                ranks = position[columns].tolist()
                place = max(range(len(children)), key=ranks.__getitem__)
                best, column = children[place], columns[place]
                total = worse + through
                low, high = (worse + through * below) / total, (worse + through * (below + draft)) / total
                share = worse / total
                norm = sum(share**power for power in range(branches))
                proposals[node] = draft * powers(low, high, branches - 1) / norm
                worse += through * float(below[column])
                through *= float(draft[column])
            chosen[node] = {best: 1.0}
            node = best
        return Route(chosen, proposals)

    def _ranked(self, node: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draft law, draft mass ranked below, and rank of each column."""
        if node not in self._ranks:
            target, draft = (law.double() for law in self.laws.columns(node))
            order = rank(target, draft)
            ranked = draft[order]
            below = ranked.new_empty(len(order)).scatter_(0, order, ranked.cumsum(0) - ranked)
            self._ranks[node] = draft, below.clamp_(min=0), order.argsort()
        return self._ranks[node]


class RankedRule:
    """RBV: at each node the child that the Ranked solver's rule chooses among the branches through it."""

    def __init__(self, laws: NodeLaws, tokens: Sequence[int]) -> None:
        self.laws, self.tokens = laws, tokens
        self._plans: dict[tuple[int, int], Plan] = {}

    def route(self, lists: ChildLists) -> Route:
        route = Route({}, {})
        for node, children in lists.items():
            if len(children) == 1:
                route.chosen[node] = {children[0]: 1.0}
                continue
            plan = self._plan(node, len(children))
            columns = self.laws.columns_of([self.tokens[child] for child in children])
            child_of = dict(zip(columns, children, strict=True))
            route.chosen[node] = {child_of[c]: probability for c, probability in plan.choose(columns).items()}
            route.proposals[node] = plan.law
        return route

    def _plan(self, node: int, count: int) -> Plan:
        if (node, count) not in self._plans:
            target, draft = self.laws.columns(node)
            self._plans[node, count] = Ranked().plan(target.double(), draft.double(), count)
        return self._plans[node, count]
