"""Depth-wise estimates of `P(tau >= d)` from one drawing: OTLP solvers, Block and Traversal Verification.

Unbiased, and unchanged when the tree grows deeper, so that one drawing gives every `L2` as a prefix sum. They refine
the labels of arXiv 2602.16994, `E[tau + 1 | tree]`, and have their mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from selector.trees.block import take
from selector.trees.block_paths import FirstBranch, MakeRouter
from selector.trees.super_tree_view import ChildList, Drawing, Estimates, Reading, average_trees
from selector.verification.solver import Solver, ratio
from selector.verification.without_replacement import Visit, add_masses, descend

Lists = dict[ChildList, dict[int, float]]


def walk_estimates(drawing: Drawing, solver: Solver) -> Estimates:
    """`g_d` = sum over nodes `u` of depth `d - 1` of `reach(u) alpha(f, k_u)`.

    Where a solver has no closed rate `alpha`, the branching probabilities of the drawn children add up to an
    unbiased estimate of it.
    """
    rates = dict(zip(drawing.pairs, solver.acceptance(drawing.distributions, drawing.pairs), strict=True))
    # The deepest level's children are drawn but needed only where no rate is known.
    ends = [item for item in drawing.end_lists if rates[item[0], len(item[1])] is None]
    branching = solve_lists(drawing, solver, list(dict.fromkeys(drawing.inner_lists + ends)))

    reach = {drawing.trunk[0]: drawing.weight}
    for node in drawing.nodes[1:]:
        parent = drawing.parents[node]
        reach[node] = reach[parent] * branching[parent, (node,)][node]
    gains = {node: reach[node] * _rate(rates[node, 1]) for nodes in drawing.chain_nodes for node in nodes}
    trees = []
    for key, levels in drawing.trees:
        start = next(iter(levels[0]))
        trees.append((key, _tree_estimates(levels, {start: reach[start]}, rates, branching)))
    return Estimates(drawing.average_chain(gains), average_trees(trees))


def _rate(rate: float | None) -> float:
    """Rates of a single draft are known for every solver."""
    assert rate is not None
    return rate


def _tree_estimates(
    levels: list[dict[int, tuple[int, ...]]],
    reach: dict[int, float],
    rates: dict[tuple[int, int], float | None],
    branching: Lists,
) -> list[float]:
    """`g` at each depth below the branching node, whose own reach is given."""
    estimates = []
    for depth, level in enumerate(levels):
        total, below = 0.0, {}
        for node, children in level.items():
            rate = rates[node, len(children)]
            if rate is None:
                rate = sum(branching[node, children].values())
            total += reach[node] * rate
            if depth + 1 < len(levels):
                for child, probability in branching[node, children].items():
                    below[child] = reach[node] * probability
        estimates.append(total)
        reach = below
    return estimates


def solve_lists(drawing: Drawing, solver: Solver, lists: list[ChildList]) -> Lists:
    """Branching probability of each distinct child node, for each `(node, child nodes with multiplicity)`."""
    solutions = solver.solve(drawing.distributions, [drawing.drafts[item] for item in lists])
    return {
        item: {child: solution.branching[drawing.tokens[child]] for child in dict.fromkeys(item[1])}
        for item, solution in zip(lists, solutions, strict=True)
    }


def block_estimates(drawing: Drawing, router: MakeRouter) -> Estimates:
    """`g_d` = sum over nodes `u` of depth `d - 1` of `P(u taken) sum min(r_u, w_u p_u)`: BV, GBV and RBV."""
    weights = chain_weights(drawing)
    chain = block_chain(drawing, weights)
    if router is FirstBranch:
        return Estimates(chain, {})
    lists = [{node: children for level in levels for node, children in level.items()} for _, levels in drawing.trees]
    routes = router(drawing.distributions, drawing.tokens).routes(lists)
    starts = {node: weights[node] for node in drawing.trunk}
    taken = take(drawing.distributions, routes, drawing.target, drawing.draft, starts)
    trees = [
        (key, [sum(one.reach.get(node, 0.0) * one.gain(node) for node in level) for level in levels])
        for (key, levels), one in zip(drawing.trees, taken, strict=True)
    ]
    return Estimates(chain, average_trees(trees))


def block_chain(drawing: Drawing, weights: Mapping[int, float]) -> list[float]:
    """`g_d = sum min(q, w p)` at the first `d - 1` tokens of a single path."""
    nodes = list(dict.fromkeys(node for nodes in drawing.chain_nodes for node in nodes))
    alive = [node for node in nodes if weights[node] > 0]
    masses = drawing.distributions.positive_mass(alive, [1 / weights[node] for node in alive])
    gains = dict.fromkeys(nodes, 0.0)
    gains.update((node, weights[node] * (1 - mass)) for node, mass in zip(alive, masses, strict=True))
    return drawing.average_chain(gains)


def chain_weights(drawing: Drawing) -> dict[int, float]:
    """`w` of each node as the end of a single path: `w_i = min(1, w_{i-1} p / q)`."""
    weights = {drawing.trunk[0]: drawing.weight}
    for node in drawing.nodes[1:]:
        weights[node] = ratio(weights[drawing.parents[node]] * drawing.target[node], drawing.draft[node])
    return weights


def traversal_estimates(drawing: Drawing) -> Estimates:
    """Integrated form for Traversal: `g_d` sums, over nodes `v` of depth `d - 1`, the chance to arrive at `v` times
    that of some child's entry weight, averaged over the children not yet looked at.

    State and arrival of a node depend on earlier branches only, so one pass over the first `Kmax` branches serves
    every `K`: only the number of branches through a node changes.
    """
    weights = chain_weights(drawing)
    roots = [_Reader(drawing, reading, weights[reading.start]) for reading in drawing.readings]
    descend(drawing.distributions, [reader.root for reader in roots])
    visits = [visit for reader in roots for visit, _, _ in reader.inner if visit.weight > 0]
    add_masses(drawing.distributions, visits)
    totals = drawing.distributions.draft_totals(visit.row for visit in visits)
    unfinished = [visit for reader in roots for visit in reader.unfinished if visit.weight > 0]
    for visit in unfinished:
        visit.factors.append(visit.next_factor(len(visit.children), totals[visit.row]))
    add_masses(drawing.distributions, unfinished)
    trees = []
    for reader in roots:
        trees += reader.estimates(totals)
    return Estimates(block_chain(drawing, weights), average_trees(trees))


class _Reader:
    """The visits of one reading, and which of its branches pass through each.

    Attributes:
        inner: `(visit, depth below the branching node, ranks of the branches through it)`, parents first.
        unfinished: visits with drafts left after their last distinct child: what else these might have been counts.
    """

    def __init__(self, drawing: Drawing, reading: Reading, weight: float) -> None:
        self.drawing, self.reading = drawing, reading
        self.root = Visit(reading.start, weight=weight)
        self.inner: list[tuple[Visit, int, list[int]]] = []
        self.unfinished: list[Visit] = []
        level = [(self.root, list(range(len(reading.branches))))]
        for depth in range(len(reading.branches[0])):
            level = [pair for visit, ranks in level for pair in self._grow(visit, depth, ranks)]

    def _grow(self, visit: Visit, depth: int, ranks: list[int]) -> list[tuple[Visit, list[int]]]:
        below: dict[int, list[int]] = {}
        for rank in ranks:
            below.setdefault(self.reading.branches[rank][depth], []).append(rank)
        visit.children = [Visit(node, self.drawing.target[node], self.drawing.draft[node]) for node in below]
        self.inner.append((visit, depth, ranks))
        if list(below.values())[-1][0] != ranks[-1]:
            self.unfinished.append(visit)
        return list(zip(visit.children, below.values(), strict=True))

    def estimates(self, totals: dict[int, float]) -> list[tuple[tuple[int, int], list[float]]]:
        """`((K, L1), g at each depth)` for every `K >= 2`."""
        counts = range(2, len(self.reading.branches) + 1)
        found = {count: [0.0] * len(self.reading.branches[0]) for count in counts}
        arrive = {id(self.root): 1.0}
        for visit, depth, ranks in self.inner:
            if visit.weight == 0 or arrive[id(visit)] == 0:
                arrive.update((id(child), 0.0) for child in visit.children)
                continue
            left = arrive[id(visit)]
            for child in visit.children:
                arrive[id(child)] = left
                left *= 1 - child.weight
            values = self._values(visit, depth, ranks, totals[visit.row])
            for count in counts:
                through = sum(rank < count for rank in ranks)
                if through:
                    found[count][depth] += arrive[id(visit)] * values[through]
        return [((count, self.reading.position), values) for count, values in found.items()]

    def _values(self, visit: Visit, depth: int, ranks: list[int], total: float) -> list[float]:
        """Chance of some child's entry when the first `k` branches pass through, for each `k`."""
        drawn = [self.reading.branches[rank][depth] for rank in ranks]
        values = [0.0] * (len(ranks) + 1)
        rejected, mass = 1.0, 0.0
        for step in range(len(visit.masses) - 1):
            # Position in the list, counted from 1, of the last child that must have been rejected before this step.
            position = drawn.index(visit.children[step - 1].row) + 1 if step else 0
            if step:
                rejected *= 1 - visit.children[step - 1].weight
                mass += visit.children[step - 1].draft / total
            if visit.masses[step] + visit.slack <= 0:
                break
            gain = (visit.masses[step] - visit.masses[step + 1]) / (visit.masses[step] + visit.slack)
            for through in range(position + 1, len(values)):
                exists = 1 - mass ** (through - position)
                values[through] += exists * rejected * max(0.0, gain)
        return values
