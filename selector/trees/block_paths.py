"""Choice of the path that block verification runs on, and the distribution of the path's next token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from selector.trees.nodes import ChildLists
from selector.verification.node_distributions import Drafts, NodeDistributions
from selector.verification.proposal import Choice, choices
from selector.verification.ranked import Ranked
from selector.verification.ranking import rankings


class Proposal(Protocol):
    """A distribution of the next token that is not the draft's; equal ones are equal values."""

    def with_target(
        self, distributions: NodeDistributions
    ) -> tuple[Float[Tensor, " columns"], Float[Tensor, " columns"]]:
        """Target distribution and this distribution, float64, both over the columns in one order or another."""
        ...

    def probs(self, distributions: NodeDistributions) -> Float[Tensor, " columns"]:
        """This distribution in the columns' order."""
        ...

    def __hash__(self) -> int: ...


class Route(NamedTuple):
    """A random path.

    Attributes:
        chosen: probability of each child to be next, at nodes that a path can take.
        proposals: distribution of the next token on the path where it is not the draft's distribution.
        chances: what that distribution gives to the token of each child that may be chosen.
    """

    chosen: dict[int, dict[int, float]]
    proposals: dict[int, Proposal]
    chances: dict[int, float]


class Router(Protocol):
    """A rule whose next token, given the path so far, follows a known distribution."""

    def routes(self, trees: Sequence[ChildLists]) -> list[Route]:
        """The route through each of some trees."""
        ...


MakeRouter = Callable[[NodeDistributions, Sequence[int]], Router]
"""A router for the distributions at some nodes, and the tokens of these."""


class FirstBranch:
    """Block Verification: the first branch, whose tokens follow the draft's own distributions."""

    def __init__(self, distributions: NodeDistributions, tokens: Sequence[int]) -> None:
        pass

    def routes(self, trees: Sequence[ChildLists]) -> list[Route]:
        return [Route({node: {children[0]: 1.0} for node, children in lists.items()}, {}, {}) for lists in trees]


class GreedyDistribution(NamedTuple):
    """Distribution of the best-ranked next token at a row, given the path so far.

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

    def with_target(
        self, distributions: NodeDistributions
    ) -> tuple[Float[Tensor, " columns"], Float[Tensor, " columns"]]:
        ranking = rankings(distributions, [self.row])[self.row]
        total = self.worse + self.through
        low = (ranking.mass[:-1] * (self.through / total)).add_(self.worse / total)
        high = torch.add(low, ranking.draft, alpha=self.through / total)
        term, probs = low, low + high
        for _ in range(self.branches - 2):
            term = term * low
            probs = torch.addcmul(term, probs, high)
        return ranking.target, probs.mul_(ranking.draft).mul_(self._scale())

    def probs(self, distributions: NodeDistributions) -> Float[Tensor, " columns"]:
        return self.with_target(distributions)[1].index_select(
            0, rankings(distributions, [self.row])[self.row].position
        )

    def _scale(self) -> float:
        share = self.worse / (self.worse + self.through)
        return 1 / sum(share**power for power in range(self.branches))


class ChildRanks(NamedTuple):
    """Per child node: rank of its token by `p / q`, draft mass of the ranks below, its draft probability."""

    rank: dict[int, float]
    below: dict[int, float]
    draft: dict[int, float]


class BestRanked:
    """GBV: at each node the child with the best `p / q` (ties by token id)."""

    def __init__(self, distributions: NodeDistributions, tokens: Sequence[int]) -> None:
        self.distributions, self.tokens = distributions, tokens
        self._children: dict[int, dict[int, None]] = {}
        self._ranks: dict[int, ChildRanks] = {}

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
                ranks = self._ranks_of(node)
                best = max(lists[node], key=ranks.rank.__getitem__)
                proposal = GreedyDistribution(node, branches, worse, through)
                route.proposals[node] = proposal
                route.chances[best] = proposal.at(ranks.below[best], ranks.draft[best])
                worse += through * ranks.below[best]
                through *= ranks.draft[best]
            route.chosen[node] = {best: 1.0}
            node = best
        return route

    def _ranks_of(self, node: int) -> ChildRanks:
        if node not in self._ranks:
            children = list(self._children[node])
            ranking = rankings(self.distributions, [node])[node]
            ranks = ranking.position[self.distributions.columns_of([self.tokens[child] for child in children])]
            numbers = torch.stack([ranks.double(), ranking.mass[ranks], ranking.draft[ranks]]).tolist()
            self._ranks[node] = ChildRanks(*(dict(zip(children, row, strict=True)) for row in numbers))
        return self._ranks[node]


class PlannedDistribution(NamedTuple):
    """Distribution of the token that the Ranked solver's rule chooses among some drafts."""

    row: int
    drafts: int

    def with_target(
        self, distributions: NodeDistributions
    ) -> tuple[Float[Tensor, " columns"], Float[Tensor, " columns"]]:
        return distributions.columns(self.row)[0].double(), self.probs(distributions)

    def probs(self, distributions: NodeDistributions) -> Float[Tensor, " columns"]:
        return Ranked().plans(distributions, [(self.row, self.drafts)])[self.row, self.drafts].probs


class RankedRule:
    """RBV: at each node the child that the Ranked solver's rule chooses among the branches through it."""

    def __init__(self, distributions: NodeDistributions, tokens: Sequence[int]) -> None:
        self.distributions, self.tokens = distributions, tokens

    def routes(self, trees: Sequence[ChildLists]) -> list[Route]:
        problems = {
            (node, tuple(children)): Drafts(node, tuple(self.tokens[child] for child in children), (), ())
            for lists in trees
            for node, children in lists.items()
            if len(children) > 1
        }
        pairs = [(node, len(children)) for node, children in problems]
        plans = Ranked().plans(self.distributions, pairs)
        found = choices(self.distributions, list(problems.values()), [plans[pair] for pair in pairs])
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
            route.proposals[node] = PlannedDistribution(node, len(children))
            route.chances.update((child_of[token], chance) for token, chance in choice.proposals.items())
        return route
