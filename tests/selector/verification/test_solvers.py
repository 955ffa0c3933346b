"""Node-local solvers: their law over all draft lists, their rates, the scalar form itself."""

import itertools
import math

import pytest
import torch

from selector.losslessness.worked_cases import drafts_of, output_distribution
from selector.verification.khisti import Khisti, Tournament, flattest_wins, play
from selector.verification.node_distributions import NodeDistributions
from selector.verification.proposal import Plan, solve_with_plans
from selector.verification.ranked import blocks_of, make_moments, ranked_plan
from selector.verification.ranking import rankings
from selector.verification.solvers import SOLVERS

PAIRS = {
    "generic": ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]),
    "target zero": ([0.6, 0.0, 0.4], [0.2, 0.5, 0.3]),
    "draft zero": ([0.6, 0.3, 0.1], [0.0, 0.45, 0.55]),
    "close": ([0.5, 0.3, 0.2], [0.49, 0.305, 0.205]),
    "disjoint": ([1.0, 0.0, 0.0], [0.0, 0.4, 0.6]),
    "four tokens": ([0.05, 0.35, 0.4, 0.2], [0.4, 0.3, 0.05, 0.25]),
}


def laws_of(pair, dtype=torch.float64):
    return NodeDistributions(*(torch.tensor([law], dtype=dtype) for law in PAIRS[pair]))


def draft_lists(pair, count):
    draft = PAIRS[pair][1]
    for tokens in itertools.product(range(len(draft)), repeat=count):
        weight = math.prod(draft[token] for token in tokens)
        if weight > 0:
            yield tokens, weight


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", SOLVERS)
def test_output_law_is_the_targets_and_rate_is_exact(name, count, pair):
    laws, solver = laws_of(pair), SOLVERS[name]
    law, rate = torch.zeros(len(PAIRS[pair][0]), dtype=torch.float64), 0.0
    for tokens, weight in draft_lists(pair, count):
        given = output_distribution(solver, laws, tokens)
        assert abs(float(given.sum()) - 1) < 1e-12
        law += weight * given
        rate += weight * float(given[sorted(set(tokens))].sum())
    torch.testing.assert_close(law, laws.target_probs[0], atol=1e-12, rtol=0)
    assert rate <= best_rate(*PAIRS[pair], count) + 1e-12
    found = solver.acceptance(laws, [(0, count)])[0]
    if found is not None:
        assert abs(found - rate) < 1e-12


@pytest.mark.parametrize("name", SOLVERS)
def test_rates_do_not_depend_on_which_are_asked_together(name):
    laws = laws_of("four tokens")
    if SOLVERS[name].acceptance(laws, [(0, 3)])[0] is None:
        pytest.skip("no closed rate")
    together = SOLVERS[name].acceptance(laws, [(0, 3), (0, 1), (0, 2)])
    apart = [SOLVERS[name].acceptance(laws, [(0, count)])[0] for count in (3, 1, 2)]
    assert together == pytest.approx(apart, abs=1e-14)
    assert SOLVERS[name].acceptance(laws, []) == []
    best = [best_rate(*PAIRS["four tokens"], count) for count in (3, 1, 2)]
    assert all(rate <= limit + 1e-12 for rate, limit in zip(together, best, strict=True))


def best_rate(target, draft, count):
    """No solver exceeds this (optimal transport)."""
    order = sorted(range(len(target)), key=lambda t: -draft[t] / target[t] if target[t] else float("-inf"))
    prefixes = [order[:size] for size in range(len(order) + 1)]
    return min(sum(target[t] for t in head) + 1 - sum(draft[t] for t in head) ** count for head in prefixes)


@pytest.mark.parametrize("pair", PAIRS)
def test_rates_grow_with_the_number_of_drafts(pair):
    for name in {"nss", "naive", "spectr", "specinfer"} & set(SOLVERS):
        rates = SOLVERS[name].acceptance(laws_of(pair), [(0, count) for count in range(1, 6)])
        assert all(later >= earlier - 1e-12 for earlier, later in itertools.pairwise(rates)), name


def test_positive_mass():
    laws = laws_of("generic")
    assert laws.positive_mass([0, 0, 0], [0.0, 1.0, 1e200]) == pytest.approx([1.0, 0.3, 0.0])
    assert laws.positive_mass([], []) == []
    target = torch.softmax(torch.randn(2, 50, generator=torch.Generator().manual_seed(1)), -1)
    draft = torch.zeros(2, 50)
    support = torch.tensor([3, 8, 20, 41])
    draft[:, support] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    factors = [0.7, 30.0]
    expected = [(target[row] - factors[row] * draft[row]).clamp(min=0).double().sum().item() for row in range(2)]
    assert NodeDistributions(target, draft[:, support], support).positive_mass([0, 1], factors) == pytest.approx(
        expected, abs=1e-6
    )


def test_residual_without_mass_falls_back_to_the_target():
    laws = NodeDistributions(torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[0.5, 0.5, 0.0]]))
    assert laws.residual(0, 1.0, [0]).tolist() == [0.5, 0.5, 0.0]
    assert laws.residual(0, 0.0, [0]).tolist() == [0.0, 0.5, 0.0]


def enumerated(laws, count, plan):
    """Output law and rate of a proposal solver with any plan."""
    law, rate = torch.zeros(laws.target_probs.shape[1], dtype=torch.float64), 0.0
    for tokens in itertools.product(range(len(law)), repeat=count):
        weight = math.prod(float(laws.draft_probs[0, token]) for token in tokens)
        solution = solve_with_plans(laws, [drafts_of(laws, tokens)], [plan])[0]
        rest = laws.residual(0, solution.factor, list(solution.branching), solution.proposal)
        law += weight * (1 - sum(solution.branching.values())) * rest / rest.sum()
        for token, probability in solution.branching.items():
            law[token] += weight * probability
            rate += weight * probability
    return law, rate


@pytest.mark.parametrize("seed", range(3))
def test_any_duels_and_any_blocks_are_lossless(seed):
    generator = torch.Generator().manual_seed(seed)
    target, draft = (torch.softmax(torch.randn(1, 5, generator=generator).double(), -1) for _ in range(2))
    laws = NodeDistributions(target, draft)
    ranking = rankings(laws, [0])[0]
    moments = make_moments(ranking, 3)
    blocks = blocks_of(ranking, moments, 3, torch.tensor([True, False, True, False, False]))
    plan = ranked_plan(ranking, moments, 3, blocks, torch.rand(5, generator=generator).double())
    torch.testing.assert_close(enumerated(laws, 3, plan)[0], target[0], atol=1e-12, rtol=0)

    rounds, winner = [], draft[0]
    for _ in range(2):
        rounds.append(play(target[0], winner, draft[0], top=3))
        winner = rounds[-1].probs
    torch.testing.assert_close(enumerated(laws, 3, Plan(winner, Tournament(rounds)))[0], target[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_khisti_is_optimal_for_two_drafts(seed):
    generator = torch.Generator().manual_seed(seed)
    target, draft = (torch.softmax(2 * torch.randn(1, 5, generator=generator).double(), -1) for _ in range(2))
    laws = NodeDistributions(target, draft)
    rate = enumerated(laws, 2, Khisti().make_plans(laws, 0, [2])[2])[1]
    assert rate == pytest.approx(best_rate(target[0].tolist(), draft[0].tolist(), 2), abs=1e-12)


def test_optimal_duels_against_subset_bound():
    """The program's value is the minimum over subsets `A` of `p(A) + R(top) - R_in(A)`."""
    generator = torch.Generator().manual_seed(9)
    for _ in range(30):
        own, goal = (torch.rand(5, generator=generator).double().numpy() for _ in range(2))
        pairs = torch.rand(5, 5, generator=generator).double().triu(1)
        pairs = (pairs + pairs.T).numpy()
        wins = flattest_wins(own, pairs, goal)
        assert ((wins >= 0) & (wins <= 1)).all()
        assert abs(wins + wins.T - 1).max() < 1e-12
        value = sum(map(min, goal, own + (wins * pairs).sum(1)))
        everything = own.sum() + pairs.sum() / 2
        groups = [list(group) for size in range(6) for group in itertools.combinations(range(5), size)]
        bound = min(goal[g].sum() + everything - own[g].sum() - pairs[g][:, g].sum() / 2 for g in groups)
        assert value == pytest.approx(bound, abs=1e-9)


@pytest.mark.parametrize("mass", [1e-45, 1e-40, 1e-38, 1e-31, 1e-20, 1e-8])
@pytest.mark.parametrize("name", SOLVERS)
def test_residuals_of_almost_no_mass(name, mass):
    """Equal laws but for one token that the draft never draws: reciprocals of what is left must not overflow."""
    target = torch.tensor([[0.5, 0.5, mass, 0.0]], dtype=torch.float32)
    draft = torch.tensor([[0.5, 0.5, 0.0, 0.0]], dtype=torch.float32)
    laws = NodeDistributions(target, draft)
    rates = SOLVERS[name].acceptance(laws, [(0, 1), (0, 2), (0, 3), (0, 4)])
    assert all(rate is None or (math.isfinite(rate) and 0 <= rate <= 1 + 1e-6) for rate in rates)
    for tokens in ([0, 1], [0, 0, 1], [1, 1, 1, 0]):
        law = output_distribution(SOLVERS[name], laws, tokens)
        assert bool(law.isfinite().all())
        assert float(law.sum()) == pytest.approx(1, abs=1e-5)
