"""Copied trunks and mixed trees: losslessness by enumeration, equalities, refusals, mutants."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from selector.errors import UserError
from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import CopyExpansion, Expansion
from selector.trees.nodes import Subtree, tree_nodes
from selector.trees.topology import Topology, prefix_of
from selector.trees.verifier import NodesVerifier
from selector.trees.verifiers import BLOCKS, VERIFIERS
from selector.trees.walk import Walk
from selector.verification.node_distributions import NodeDistributions
from tests.support.copy_mutants import CopyLast, SkipsEqualDrafts
from tests.support.exact_worlds import World

PATHS = [block.name for block in BLOCKS]
MIXING = [name for name in VERIFIERS if name not in PATHS]

TRUNKS = {
    "alone": (World(3, seed=1, zeros="t"), CopyExpansion(3)),
    "branches below": (World(3, seed=2, zeros="td"), CopyExpansion(1, Expansion(2, 0, 2))),
    "three branches below": (World(2, seed=3), CopyExpansion(2, Expansion(3, 0, 2))),
    "a drafted trunk below": (World(3, seed=4, zeros="d"), CopyExpansion(2, Expansion(2, 1, 1))),
}
MIXED = {
    "one draft": (World(3, seed=5, zeros="td"), CopyExpansion(1, Expansion(1, 0, 1), beside=True)),
    "a chain beside a longer one": (World(3, seed=6), CopyExpansion(1, Expansion(1, 0, 2), beside=True)),
    "three drafts": (World(3, seed=7, zeros="t"), CopyExpansion(3, Expansion(3, 0, 1), beside=True)),
    "two branches of two": (World(3, seed=8, zeros="td"), CopyExpansion(2, Expansion(2, 0, 2), beside=True)),
    "three branches of two": (World(2, seed=9), CopyExpansion(3, Expansion(3, 0, 2), beside=True)),
    "a drafted trunk beside": (World(2, seed=10, zeros="d"), CopyExpansion(2, Expansion(2, 1, 2), beside=True)),
    "close laws": (World(3, seed=11, closeness=1.0), CopyExpansion(2, Expansion(2, 0, 1), beside=True)),
}


@pytest.mark.parametrize("case", TRUNKS)
@pytest.mark.parametrize("name", VERIFIERS)
def test_copied_trunks_are_lossless(name: str, case: str) -> None:
    world, action = TRUNKS[case]
    assert world.gap(VERIFIERS[name], action) < 1e-12


@pytest.mark.parametrize("case", MIXED)
@pytest.mark.parametrize("name", MIXING)
def test_mixed_trees_are_lossless(name: str, case: str) -> None:
    world, action = MIXED[case]
    assert world.gap(VERIFIERS[name], action) < 1e-12


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", MIXING)
def test_random_models(name: str, seed: int) -> None:
    """Copied tokens of every kind: sure, impossible, drafted by nobody."""
    world = World(3, seed=100 + seed, zeros=["t", "d", "td", ""][seed % 4], earlier=(seed % 3, (seed + 1) % 3))
    for length, shape in ((1, Expansion(1, 0, 2)), (2, Expansion(2, 0, 1))):
        assert world.gap(VERIFIERS[name], CopyExpansion(length, shape, beside=True)) < 1e-12


@pytest.mark.parametrize("mutant", [SkipsEqualDrafts, CopyLast])
@pytest.mark.parametrize("name", MIXING)
def test_mutants_are_not_lossless(name: str, mutant: type[SkipsEqualDrafts | CopyLast]) -> None:
    world, verifier = World(3, seed=23), VERIFIERS[name]
    assert isinstance(verifier, NodesVerifier)
    action = CopyExpansion(1, Expansion(2, 0, 1), beside=True)
    if name == "nss" and mutant is SkipsEqualDrafts:
        assert world.gap(mutant(verifier), action) < 1e-12  # it looks at no draft
    else:
        assert world.gap(mutant(verifier), action) > 1e-3


@pytest.mark.parametrize("case", [*TRUNKS, *MIXED])
@pytest.mark.parametrize("name", VERIFIERS)
def test_distribution_decision_and_expected_tokens_agree(name: str, case: str) -> None:
    if name in PATHS and case in MIXED:
        pytest.skip("refused")
    world, action = (TRUNKS | MIXED)[case]
    verifier = VERIFIERS[name]
    assert isinstance(verifier, NodesVerifier)
    for _, tree, target in itertools.islice(world.trees(action), 9):
        outcome = verifier.distribution(tree, target)
        assert abs(float(outcome.sum()) - 1) < 1e-12
        assert bool((outcome >= 0).all())
        assert not bool(outcome[target == 0].any())
        accepted = verifier.decide(tree, target).accepted
        assert outcome.sum(1).tolist() == pytest.approx([accepted.get(node, 0.0) for node in range(len(outcome))])
        expected = float((outcome.sum(1) * (torch.tensor(tree.topology.depths) + 1)).sum())
        assert float(verifier.expected_tokens(tree, target)) == pytest.approx(expected, abs=1e-12)
        assert verifier.expected_among(*tree_nodes(tree, target)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", PATHS)
def test_path_verifiers_refuse_mixed_trees(name: str) -> None:
    for world, action in MIXED.values():
        _, tree, target = next(world.trees(action))
        with pytest.raises(UserError, match=f"^verifier is '{name}', .* traversal"):
            VERIFIERS[name].verify(tree, target, None)
        with pytest.raises(UserError, match=f"^verifier is '{name}', "):
            VERIFIERS[name].expected_tokens(tree, target)


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_copied_chain_has_a_closed_form(name: str) -> None:
    """`1 + sum_d prod_{i<=d} p_i(c_i)`, and the bonus token of a rejection is never the copied one."""
    _, tree, target = next(World(3, seed=31).trees(CopyExpansion(3)))
    chances = [float(target[node, tree.tokens[child]]) for node, child in tree.copied_children.items()]
    expected = 1 + sum(math.prod(chances[:depth]) for depth in (1, 2, 3))
    assert float(VERIFIERS[name].expected_tokens(tree, target)) == pytest.approx(expected)
    outcome = VERIFIERS[name].distribution(tree, target)
    assert all(outcome[node, tree.tokens[child]] == 0 for node, child in tree.copied_children.items())


def with_point_masses(tree: DraftTree) -> DraftTree:
    """A copied trunk as an ordinary one, drafted from point masses."""
    children = [list(entries) for entries in tree.topology.children]
    rows = max(len(tree.draft_probs), len(tree.copied))
    draft = torch.zeros(rows, tree.draft_probs.shape[1], dtype=tree.draft_probs.dtype)
    draft[: len(tree.draft_probs)] = tree.draft_probs
    for node, child in tree.copied_children.items():
        children[node], draft[node, tree.tokens[child]] = [child], 1.0
    return replace(tree, topology=replace(tree.topology, children=children), draft_probs=draft, copied=())


@pytest.mark.parametrize("name", VERIFIERS)
def test_copied_trunks_are_drafted_from_point_masses(name: str) -> None:
    for world, action in TRUNKS.values():
        for _, tree, target in itertools.islice(world.trees(action), 8):
            drafted = VERIFIERS[name].distribution(with_point_masses(tree), target)
            torch.testing.assert_close(VERIFIERS[name].distribution(tree, target), drafted, atol=1e-12, rtol=0)


def renumbered(tree: DraftTree, target: Tensor) -> tuple[DraftTree, Tensor, list[int]]:
    """The same tree with its nodes in depth-first order; the old number of each node; every node has a draft row."""
    order = sorted(range(len(tree.tokens)), key=tree.topology.path)
    place = {node: new for new, node in enumerate(order)}
    parents = [-1, *(place[tree.topology.parents[node]] for node in order[1:])]
    children = [[place[child] for child in tree.topology.children[node]] for node in order]
    topology = Topology(parents, [tree.topology.depths[node] for node in order], children)
    draft = torch.zeros(len(order), tree.draft_probs.shape[1], dtype=tree.draft_probs.dtype)
    draft[[place[node] for node in range(len(tree.draft_probs))]] = tree.draft_probs
    copied = tuple(place[node] for node in tree.copied)
    return DraftTree(topology, tree.tokens[order], draft, copied=copied), target[order], order


@pytest.mark.parametrize("name", MIXING)
def test_any_order_of_the_nodes(name: str) -> None:
    for case in ("two branches of two", "a drafted trunk beside"):
        world, action = MIXED[case]
        for _, tree, target in itertools.islice(world.trees(action), 5, 60, 5):
            other, rows, order = renumbered(tree, target)
            outcome = VERIFIERS[name].distribution(other, rows)
            torch.testing.assert_close(outcome, VERIFIERS[name].distribution(tree, target)[order], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", VERIFIERS)
def test_copied_tokens_outside_a_reduced_support(name: str, device: torch.device) -> None:
    action = CopyExpansion(2, Expansion(2, 0, 1), beside=name in MIXING)
    world = World(4, seed=41, earlier=(0, 3))
    for prefix in [(), (0,), (0, 3), (1,), (2,)]:
        law = world.law("draft", prefix)
        law[0] = law[3] = 0.0  # the support is 1, 2
        law /= law.sum()
    for _, tree, target in world.trees(action):
        small = replace(
            tree,
            tokens=tree.tokens.to(device),
            draft_probs=tree.draft_probs[:, 1:3].to(device),
            support=torch.tensor([1, 2], device=device),
        )
        outcome = VERIFIERS[name].distribution(small, target.to(device)).cpu()
        torch.testing.assert_close(outcome, VERIFIERS[name].distribution(tree, target), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_cut_tree(name: str) -> None:
    """Below a node that is cut nothing is accepted, and its row is read by nobody but the bonus token's draw."""
    world = World(3, seed=51)
    for action in [CopyExpansion(3), CopyExpansion(3, Expansion(2, 0, 2), beside=True)][: 1 + (name in MIXING)]:
        for _, tree, target in itertools.islice(world.trees(action), 20):
            cut = tree.cut([tree.copied[0]])
            outcome = VERIFIERS[name].distribution(cut, target)
            assert float(outcome.sum()) == pytest.approx(1)
            below = [node for node in range(len(target)) if tree.copied[0] in tree.topology.path(node)[:-1]]
            assert not bool(outcome[below].any())


@pytest.mark.parametrize("name", [name for name in MIXING if name != "traversal"])
def test_acceptance_rate_of_a_mixed_root(name: str) -> None:
    """`p(c) + (1 - p(c)) alpha(p', q, k)`."""
    for seed in range(4):
        world, verifier = World(3, seed=60 + seed), VERIFIERS[name]
        assert isinstance(verifier, Walk)
        target, draft = world.law("target", ()), world.law("draft", ())
        left = target.clone()
        left[world.earlier[0]] = 0.0
        chance = 1 - float(left.sum())
        for count in (1, 2):
            distributions = NodeDistributions((left / left.sum())[None], draft[None])
            rate = verifier.solver.acceptance(distributions, [(0, count)])[0]
            if rate is not None:
                found = world.expected_tokens(verifier, CopyExpansion(1, Expansion(count, 0, 1), beside=True))
                assert found == pytest.approx(1 + chance + (1 - chance) * rate, abs=1e-12)


@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.parametrize("chance", [0.0, 1.0, 1 - 2**-24, 2**-24])
def test_a_sure_or_impossible_copy_in_single_precision(name: str, chance: float) -> None:
    target = torch.tensor([[chance, (1 - chance) / 2, (1 - chance) / 2]] * 4, dtype=torch.float32)
    if name in MIXING:
        topology = Topology([-1, 0, 0, 1], [0, 1, 1, 2], [[2, 1], [3], [], []])
        tree = DraftTree(topology, torch.tensor([0, 0, 1, 0]), torch.tensor([[0.5, 0.5, 0.0]] * 2), copied=(1, 3))
    else:
        topology = Topology([-1, 0, 1, 1], [0, 1, 2, 2], [[], [3, 2], [], []])
        tree = DraftTree(topology, torch.tensor([0, 0, 1, 0]), torch.tensor([[0.5, 0.5, 0.0]] * 2), copied=(1,))
    outcome = VERIFIERS[name].distribution(tree, target)
    assert bool(outcome.isfinite().all())
    assert bool((outcome >= 0).all())
    assert float(outcome.sum()) == pytest.approx(1, abs=1e-6)
    assert not bool(outcome[target == 0].any())
    if chance == 1:
        assert float(VERIFIERS[name].expected_tokens(tree, target)) == pytest.approx(3)


@pytest.mark.parametrize("name", VERIFIERS)
def test_trees_among_the_same_nodes(name: str) -> None:
    """What trees share is that of each: a super-tree, cut to fewer branches, levels and copied tokens."""
    world = World(3, seed=71, zeros="td", earlier=(1, 0, 2))
    branches = [(1, 0, 2), (2, 1, 0), (1, 0, 0)]
    whole, target = world.tree((), tuple(branches), world.earlier, beside=True)
    nodes, _ = tree_nodes(whole, target)
    prefixes = [prefix_of(whole.topology, nodes.tokens, node) for node in range(len(nodes.tokens))]
    verifier = VERIFIERS[name]
    assert isinstance(verifier, NodesVerifier)
    for count, length, copied in itertools.product(range(1, 4), range(4), range(4)):
        if name in PATHS and copied and length:
            continue
        kept = tuple(branch[:length] for branch in branches[:count])
        lists: dict[int, list[int]] = {}
        for depth in range(length):
            for branch in kept:
                lists.setdefault(prefixes.index(branch[:depth]), []).append(prefixes.index(branch[: depth + 1]))
        tree = Subtree(lists, dict(list(whole.copied_children.items())[:copied]))
        alone = world.tree((), kept, world.earlier[:copied], beside=True)
        expected = float(verifier.expected_tokens(*alone))
        assert verifier.expected_among(nodes, tree) == pytest.approx(expected, abs=1e-12)
