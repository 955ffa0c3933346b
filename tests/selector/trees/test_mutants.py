"""Plausible mistakes in verification: the enumeration check must notice each of them."""

from dataclasses import replace

import pytest

from selector.losslessness.broken_decoders import AlwaysAccept
from selector.trees.block import Block
from selector.trees.block_paths import BestRanked
from selector.trees.expansion import Expansion
from selector.trees.nodes import Subtree
from selector.trees.traversal import Traversal, post_order
from selector.trees.verifier import Decision, TreeVerifier
from selector.trees.verifiers import VERIFIERS
from selector.trees.walk import Walk
from selector.verification.khisti import Khisti, Tournament
from selector.verification.naive import Naive
from selector.verification.ranked import Ranked
from selector.verification.ranking import make_ranking
from selector.verification.solver import Solution, ratio
from selector.verification.specinfer import Chain, SpecInfer
from selector.verification.spectr import SpecTr
from selector.verification.without_replacement import Visit
from tests.support.exact_worlds import World

NOTICED = 1e-3


def gap(verifier, vocab=2, expansion=None, seed=1):
    return World(vocab, seed=seed).gap(verifier, expansion or Expansion(3, 0, 2))


class ChangedTree(TreeVerifier):
    """Looks at other laws than those of the tree."""

    def __init__(self, verifier, change):
        self.verifier, self.change, self.name = verifier, change, verifier.name

    def decide(self, tree, target_probs):
        return self.verifier.decide(*self.change(tree, target_probs))


def unwarped_draft(tree, target_probs):
    changed = tree.draft_probs**0.5
    tree = type(tree)(tree.topology, tree.tokens, changed / changed.sum(-1, keepdim=True))
    return tree, target_probs


def target_rows_one_node_late(tree, target_probs):
    return tree, target_probs.roll(1, 0)


class ChangedDecision(ChangedTree):
    """Changes the decision itself."""

    def decide(self, tree, target_probs):
        return self.change(self.verifier.decide(tree, target_probs), tree, target_probs)


def always_accept(decision, tree, target_probs):
    return Decision(AlwaysAccept().decide(tree, target_probs).accepted, decision.bonus)


def bonus_from_the_target(decision, tree, target_probs):
    return Decision(decision.accepted, lambda node: target_probs[node])


def bonus_from_the_parents_row(decision, tree, target_probs):
    return Decision(decision.accepted, lambda node: decision.bonus(max(0, tree.topology.parents[node])))


@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.parametrize("change", [unwarped_draft, target_rows_one_node_late])
def test_wrong_laws(name, change):
    if name == "nss" and change is unwarped_draft:
        pytest.skip("NSS never looks at the draft's law")
    assert gap(ChangedTree(VERIFIERS[name], change)) > NOTICED


@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.parametrize("change", [always_accept, bonus_from_the_target, bonus_from_the_parents_row])
def test_wrong_decisions(name, change):
    assert gap(ChangedDecision(VERIFIERS[name], change), expansion=Expansion(2, 1, 1)) > NOTICED


class NaiveOnEveryDraft(Naive):
    """Accepts any draft with min(1, p / q), then one residual."""

    def _solve(self, problem, mass):
        branching, left = dict.fromkeys(problem.tokens, 0.0), 1.0
        for token, target, draft in zip(problem.tokens, problem.target, problem.draft, strict=True):
            accept = ratio(target, draft)
            branching[token] += left * accept
            left *= 1 - accept
        for token, (target, draft) in problem.distinct().items():
            branching[token] += left * max(0.0, target - draft) / mass if mass > 0 else 0.0
        return Solution(branching, 1.0)


class SpecInferBeforeTheUpdate(SpecInfer):
    """Acceptance of a round taken before its residual update."""

    def _accept(self, problem, chain):
        accept = super()._accept(problem, chain)
        return [accept[0], *accept[:-1]]


class SpecInferNotRenormalised(SpecInfer):
    """Residuals left without their norm."""

    def chains(self, laws, lengths):
        chains = super().chains(laws, lengths)
        return {
            row: Chain([float(step) for step in range(len(chain.factors))], [1.0] * len(chain.masses))
            for row, chain in chains.items()
        }


class SpecTrBelowTheRoot(SpecTr):
    """Drafts accepted against the draft's own law: `rho = 1`."""

    def _solve(self, problem, root):
        return super()._solve(problem, root._replace(rho=1.0))


class RankedWithoutPassingOn(Ranked):
    """A rule that always takes the best draft, with the law of the rule that passes it on."""

    def make_plans(self, laws, row, counts):
        plans = super().make_plans(laws, row, counts)
        return {k: replace(plan, rule=plan.rule._replace(drop=0 * plan.rule.drop)) for k, plan in plans.items()}


class KhistiEvenDuels(Khisti):
    """Duels decided by a coin, with the law of the optimised ones."""

    def make_plans(self, laws, row, counts):
        return {k: self._decided_by_a_coin(plan) for k, plan in super().make_plans(laws, row, counts).items()}

    def _decided_by_a_coin(self, plan):
        rounds = [replace(duel, wins=0.5 + 0 * duel.wins) for duel in plan.rule.rounds]
        return replace(plan, rule=Tournament(rounds))


SOLVER_MUTANTS = [
    NaiveOnEveryDraft(),
    SpecInferBeforeTheUpdate(),
    SpecInferNotRenormalised(),
    SpecTrBelowTheRoot(),
    RankedWithoutPassingOn(),
    KhistiEvenDuels(),
]


@pytest.mark.parametrize("solver", SOLVER_MUTANTS, ids=lambda solver: type(solver).__name__)
def test_wrong_solvers(solver):
    assert gap(Walk(solver), vocab=3, expansion=Expansion(3, 0, 1)) > NOTICED


class TraversalWithWholeDraft(Traversal):
    """Duplicates merged, but a rejected token left in the draft's law."""

    def make_visits(self, nodes, tree, order):
        visits = super().make_visits(nodes, tree, order)
        for visit in visits.values():
            visit.__class__ = WholeDraftVisit
        return visits


class WholeDraftVisit(Visit):
    __slots__ = ()

    def remaining(self, step, draft_total):
        return 1.0


class TraversalBestFirst(Traversal):
    """Children in order of p / q instead of the order they were drawn in."""

    def decide_among(self, nodes, tree):
        drafted = {
            node: sorted(entries, key=lambda child: -nodes.target[child] / nodes.draft[child])
            for node, entries in tree.drafted.items()
        }
        return super().decide_among(nodes, tree._replace(drafted=drafted))


class TraversalPathByPath(Traversal):
    """Leaves in drafting order: a node waits for the last of its branches, and others come in between."""

    def order(self, tree):
        paths = paths_in_drafting_order(tree)
        last = {node: index for index, path in enumerate(paths) for node in path}
        return [node for index, path in enumerate(paths) for node in reversed(path) if last[node] == index]


def paths_in_drafting_order(tree):
    """Follow the child lists: the i-th branch through a node takes its i-th entry; equal paths count once."""
    paths, lists = [], {node: list(entries) for node, entries in tree.drafted.items()}
    for _ in tree.drafted[0]:
        path = [0]
        while lists.get(path[-1]):
            path.append(lists[path[-1]].pop(0))
        if path not in paths:
            paths.append(path)
    return paths


@pytest.mark.parametrize(
    ("verifier", "vocab"), [(TraversalWithWholeDraft(), 3), (TraversalBestFirst(), 2), (TraversalPathByPath(), 2)]
)
def test_wrong_traversal(verifier, vocab):
    assert gap(verifier, vocab) > NOTICED


class TraversalAcceptingWithWeights(Traversal):
    """Block Verification accepting with `w` instead of `h`."""

    def make_visits(self, nodes, tree, order):
        visits = super().make_visits(nodes, tree, order)
        for visit in visits.values():
            visit.__class__ = WeightVisit
        return visits


class WeightVisit(Visit):
    __slots__ = ()

    @property
    def acceptance(self):
        return self.weight


def test_block_verification_with_weights():
    assert gap(TraversalAcceptingWithWeights(), vocab=3, expansion=Expansion(1, 0, 3)) > NOTICED


class GreedyWithTies(BestRanked):
    """Ranks by `min(1, p / q)`: the first drafted of equal ranks wins, while the law breaks ties by id."""

    def _ranks_of(self, node):
        target, draft = self.distributions.columns(node)
        ratios = (target / draft).clamp(max=1.0)
        ranking = make_ranking(target, draft, ratios.argsort(stable=True))
        self.distributions.remember("rankings", [node], lambda _: {node: ranking})
        ranks = super()._ranks_of(node)
        return ranks._replace(rank={child: float(ratios[self.tokens[child]]) for child in ranks.rank})


def test_greedy_block_verification_with_ties():
    assert gap(Block("gbv", GreedyWithTies), vocab=3, expansion=Expansion(3, 0, 2)) > 1e-4


def test_post_order_is_what_the_mutant_changes():
    """Without interleaving, path by path is post-order, and lossless."""
    assert gap(TraversalPathByPath(), expansion=Expansion(1, 0, 2)) < 1e-12
    assert post_order(Subtree({0: [1, 3, 1], 1: [2, 2]}, {})) == [2, 1, 3, 0]
    assert post_order(Subtree({0: [1, 3], 1: [2]}, {0: 3, 3: 4, 1: 5})) == [4, 3, 5, 2, 1, 0]
