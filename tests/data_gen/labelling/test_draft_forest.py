"""Super-trees: their shape, their marginal law, the independence of branches, merging, reduced heads."""

import itertools
from collections import Counter

import pytest
import torch
from scipy.stats import chi2_contingency, chisquare

from data_gen.labelling.draft_forest import draw_forest, inner_nodes
from selector.distributions import Sampling, warp
from selector.engine.drafting import start_root, start_roots
from selector.trees.expansion import Expansion
from tests.support.forests import super_tree
from tests.support.table_model import TableModel

SAMPLING = Sampling(temperature=0.8)
LIMITS = Expansion(3, 2, 2)


def start(model, sampling=SAMPLING):
    """A draft whose last pending row is the root token, as at a decoding step's start."""
    model.reset()
    return start_root(model, (1, 2), sampling)


def forest_of(model, limits=LIMITS, samples=1, seed=0, sampling=SAMPLING):
    return draw_forest(model, [start(model, sampling)], limits, samples, sampling, [seed])


def contexts(forest):
    """Tokens from the root's down to each node."""
    found = []
    for parent, token in zip(forest.parents, forest.tokens, strict=True):
        found.append([*(found[parent] if parent >= 0 else []), token])
    return found


def test_shape():
    tree, _ = super_tree(forest_of(TableModel(5, 0), seed=3), 0)
    assert tree.trunk[0] == 0
    assert [tree.topology.depths[node] for node in tree.trunk] == [0, 1, 2, 3, 4]
    assert len(tree.branches) == 3
    for position, branches in enumerate(tree.branches):
        assert len(branches) == 3
        assert branches[0] == tree.trunk[position + 1 : position + 3]
        for branch in branches:
            parents = [tree.topology.parents[node] for node in branch]
            assert parents == [tree.trunk[position], *branch[:-1]]
    assert tree.topology.depths == sorted(tree.topology.depths)
    below = Counter((p, int(t)) for p, t in zip(tree.topology.parents, tree.tokens, strict=True))
    assert max(below.values()) == 1  # equal prefixes are merged


def test_laws_are_those_of_the_context_and_leaves_have_none():
    model = TableModel(6, 0, support=[1, 3, 4])
    forest = forest_of(model, samples=3)
    for sample in range(3):
        tree, _ = super_tree(forest, sample)
        for node in range(len(tree.tokens)):
            law = tree.draft_probs[node]
            if tree.topology.children[node]:
                context = (1, 2, *tree.tokens[tree.topology.path(node)].tolist())
                torch.testing.assert_close(law, warp(model.logits(context), SAMPLING))
        assert set(tree.tokens[1:].tolist()) <= {1, 3, 4}


def test_one_draft_pass_a_level_over_distinct_nodes():
    passes = []

    class Counting(TableModel):
        def extend(self, tokens, parents, last_rows=0):
            passes.append(len(tokens))
            return super().extend(tokens, parents, last_rows)

    model = Counting(5, 0)
    root = start(model)
    passes.clear()
    forest = draw_forest(model, [root], LIMITS, 4, SAMPLING, [0])
    assert len(passes) == LIMITS.max_depth - 1
    at_depth = Counter(map(len, contexts(forest)))
    assert all(rows <= at_depth[depth + 1] for depth, rows in enumerate(passes, 1))


def test_greedy_is_one_chain():
    forest = forest_of(TableModel(5, 0), samples=4, sampling=Sampling(temperature=0))
    assert len(forest) == LIMITS.max_depth + 1


@pytest.mark.parametrize("limits", [Expansion(1, 2, 2), Expansion(3, 0, 2), Expansion(3, 2, 0), Expansion(1, 0, 1)])
def test_small_spaces(limits):
    tree, _ = super_tree(forest_of(TableModel(5, 0), limits, samples=2), 1)
    assert len(tree.trunk) == limits.max_depth + 1
    assert len(tree.branches) == limits.trunk_length + 1
    assert all(len(b) == limits.branch_length for position in tree.branches for b in position)


def draws(model, count):
    """`count` independent super-trees, read as token sequences (trunk, then branches by position)."""
    found = []
    for seed in range(count // 100):
        forest = forest_of(model, samples=100, seed=seed)
        tokens = forest.tokens
        for trunk, positions in zip(forest.trunks, forest.branches, strict=True):
            found.append(
                (
                    tuple(tokens[node] for node in trunk.nodes),
                    [[tuple(tokens[node] for node in walk.nodes) for walk in walks] for walks in positions],
                )
            )
    return found


@pytest.mark.parametrize("limits", [LIMITS, Expansion(1, 2, 2), Expansion(3, 0, 1), Expansion(3, 2, 0)])
def test_inner_nodes_without_merging(limits):
    forest = forest_of(TableModel(10_000, 0, scale=0.1), limits, samples=2)
    assert len(forest.inner) == 2 * inner_nodes(limits) - 1


def roots_of_a_text(model, text=(1, 2, 0, 3), committed=2):
    """Every token from the last committed one on, as a root in one chain of pending rows."""
    model.reset()
    model.committed = list(text[:committed])
    return start_roots(model, text[committed:], range(len(text) - committed), SAMPLING)


def test_roots_of_a_text_hang_below_their_own_rows():
    model = TableModel(6, 0, support=[1, 3, 4])
    text = (1, 2, 0, 3)
    roots = roots_of_a_text(model, text)
    assert [len(root.probs) for root in roots] == [1, 2]
    forest = draw_forest(model, roots, LIMITS, 3, SAMPLING, [5, 6])
    assert forest.num_roots == 2
    for tree in range(6):
        alone, nodes = super_tree(forest, tree)
        above = text[: 2 + tree // 3]
        assert nodes[0] == tree // 3
        for node in range(len(alone.tokens)):
            if alone.topology.children[node]:
                path = [0, *alone.topology.path(node)]
                law = warp(model.logits((*above, *alone.tokens[path].tolist())), SAMPLING)
                torch.testing.assert_close(alone.draft_probs[node], law)


def test_a_root_draws_the_same_in_any_company():
    model = TableModel(5, 0)
    both = draw_forest(model, roots_of_a_text(model), LIMITS, 2, SAMPLING, [5, 6])
    alone = draw_forest(model, roots_of_a_text(model)[1:], LIMITS, 2, SAMPLING, [6])
    for tree in range(2):
        one, other = super_tree(both, 2 + tree)[0], super_tree(alone, tree)[0]
        assert one.tokens.tolist() == other.tokens.tolist()
        assert (one.trunk, one.branches) == (other.trunk, other.branches)


def path_probs(model, context, length):
    """Law of the next `length` tokens after `context`."""
    laws = {(): 1.0}
    for _ in range(length):
        laws = {
            (*path, token): mass * float(probs)
            for path, mass in laws.items()
            for token, probs in enumerate(warp(model.logits((*context, *path)), SAMPLING))
        }
    return laws


def test_marginals_of_trunk_and_branches():
    model = TableModel(3, 5)
    found = draws(model, 6000)
    for length, observed in (
        (2, Counter(trunk[:2] for trunk, _ in found)),
        (2, Counter(branches[0][0] for _, branches in found)),
        (2, Counter(branches[0][1] for _, branches in found)),
        (4, Counter(trunk[:2] + branches[2][1] for trunk, branches in found)),
        (4, Counter(trunk for trunk, _ in found)),
        (3, Counter(trunk[:1] + branches[1][0] for trunk, branches in found)),
    ):
        expected = path_probs(model, (1, 2), length)
        counts = [observed[path] for path in expected]
        masses = [mass * len(found) for mass in expected.values()]
        assert chisquare(counts, masses, sum_check=False).pvalue > 1e-4


def test_branches_at_one_position_are_independent():
    model = TableModel(3, 5, scale=0.5)  # flat enough for a chi-square on every cell
    found = draws(model, 6000)
    pairs = [
        [(branches[0][0], branches[0][1]) for _, branches in found],
        [(trunk[:2], branches[0][1]) for trunk, branches in found],  # the trunk's own continuation is branch 0
        # below one fixed trunk node
        [(branches[1][0], branches[1][1]) for trunk, branches in found if trunk[0] == 0],
        [(trunk[1:3], branches[1][1]) for trunk, branches in found if trunk[0] == 0],
    ]
    values = list(itertools.product(range(3), repeat=2))
    for pair in pairs:
        table = torch.zeros(9, 9)
        for first, second in pair:
            table[values.index(first), values.index(second)] += 1
        table = table[table.sum(1) > 0][:, table.sum(0) > 0]
        assert chi2_contingency(table.numpy()).pvalue > 1e-4


def test_samples_are_independent():
    model = TableModel(3, 5, scale=0.5)  # flat enough for a chi-square on every cell
    table = torch.zeros(3, 3)
    for seed in range(3000):
        forest = forest_of(model, Expansion(1, 0, 1), 2, seed)
        first, second = (forest.tokens[trunk.nodes[0]] for trunk in forest.trunks)
        table[first, second] += 1
    assert chi2_contingency(table.numpy()).pvalue > 1e-4
