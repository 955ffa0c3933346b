"""Labels: their mean over all drawings is the exact block efficiency of every action."""

import itertools

import pytest
import torch

from selector.trees.efficiency import ESTIMATORS
from selector.trees.expansion import ActionSpace
from selector.trees.topology import Topology, prefix_of
from selector.trees.verifiers import VERIFIERS
from tests.support.exact_worlds import World
from tests.support.super_trees import SuperTree, label

SPACES = [
    (World(2, seed=31), ActionSpace(2, 1, 2)),
    (World(2, seed=32), ActionSpace(3, 0, 2)),
    (World(3, seed=33, zeros="td"), ActionSpace(3, 1, 1)),
    (World(3, seed=34, zeros="d"), ActionSpace(2, 0, 2)),
    (World(2, seed=35), ActionSpace(4, 0, 1)),
    (World(2, seed=36), ActionSpace(1, 1, 2)),
    (World(2, seed=37), ActionSpace(2, 2, 0)),
]


def super_tree(world, trunk, extra):
    """The super-tree of a trunk's tokens and of `extra[i]`, the other branches at trunk position `i`."""
    length = len(trunk) - (len(extra) - 1)
    paths = [[tuple(trunk[i : i + length]), *extra[i]] for i in range(len(extra))]
    prefixes = {()} | {tuple(trunk[: end + 1]) for end in range(len(trunk))}
    for i, branches in enumerate(paths):
        for branch in branches:
            prefixes |= {(*trunk[:i], *branch[: end + 1]) for end in range(length)}
    ordered = sorted(prefixes, key=lambda prefix: (len(prefix), prefix))
    number = {prefix: node for node, prefix in enumerate(ordered)}
    topology = Topology()
    for prefix in ordered[1:]:
        topology.add(number[prefix[:-1]])
    tokens = [0] + [prefix[-1] for prefix in ordered[1:]]
    assert [prefix_of(topology, tokens, node) for node in range(len(ordered))] == ordered
    tree = SuperTree(
        topology,
        torch.tensor(tokens),
        torch.stack(
            [
                world.law("draft", prefix) if topology.children[node] else torch.full([world.vocab], float("nan"))
                for node, prefix in enumerate(ordered)
            ]
        ).double(),
        [number[tuple(trunk[:end])] for end in range(len(trunk) + 1)],
        [
            [[number[(*trunk[:i], *branch[: end + 1])] for end in range(length)] for branch in branches]
            for i, branches in enumerate(paths)
        ],
    )
    return tree, torch.stack([world.law("target", prefix) for prefix in ordered])


def drawings(world, space):
    """All super-trees with their probability."""
    branches, trunk_length, length = space.limits
    tokens = range(world.vocab)
    for trunk in itertools.product(tokens, repeat=trunk_length + length):
        choices = []
        for position in range(trunk_length + 1):
            start = trunk[:position]
            paths = [(p, world.path_probability(start, p)) for p in itertools.product(tokens, repeat=length)]
            choices += [[pair for pair in paths if pair[1] > 0]] * (branches - 1)
        for chosen in itertools.product(*choices):
            weight = world.path_probability((), trunk)
            for _, probability in chosen:
                weight *= probability
            if weight > 0:
                walks = [path for path, _ in chosen]
                extra = [walks[i * (branches - 1) : (i + 1) * (branches - 1)] for i in range(trunk_length + 1)]
                yield weight, *super_tree(world, trunk, extra)


@pytest.mark.parametrize("index", range(len(SPACES)))
def test_mean_label_is_the_exact_efficiency(index):
    world, space = SPACES[index]
    names = list(VERIFIERS)
    means = {name: torch.zeros(len(space), dtype=torch.float64) for name in names}
    for weight, tree, target in drawings(world, space):
        for name, values in label(tree, target, space, names).items():
            means[name] += weight * values
    for name in names:
        exact = [world.expected_tokens(VERIFIERS[name], expansion) for expansion in space.expansions]
        assert means[name].tolist() == pytest.approx(exact, abs=1e-12), name


def one_drawing(vocab=30, seed=41, sharpness=1.0, limits=(4, 3, 3)):
    """A random super-tree of a larger world; sharp laws make its branches share nodes."""
    branches, trunk_length, length = limits
    world = World(vocab, seed=seed, closeness=sharpness)
    generator = torch.Generator().manual_seed(seed)

    def draw_path(prefix, count):
        path = ()
        for _ in range(count):
            law = world.law("draft", (*prefix, *path))
            path += (int(torch.multinomial(law, 1, generator=generator)),)
        return path

    trunk = draw_path((), trunk_length + length)
    extra = [[draw_path(trunk[:i], length) for _ in range(branches - 1)] for i in range(trunk_length + 1)]
    return super_tree(world, trunk, extra), ActionSpace(*limits)


@pytest.mark.parametrize("sharpness", [0.5, 4.0])
def test_labels_are_plausible_and_alike_in_float32_and_on_a_support(sharpness, device):
    (tree, target), space = one_drawing(sharpness=sharpness)
    labels = label(tree, target, space, list(VERIFIERS))
    for values in labels.values():
        assert values.shape == (len(space),)
        assert values.dtype == torch.float64
        limits = torch.tensor([expansion.max_depth + 1.0 for expansion in space.expansions])
        assert bool((values >= 1).all())
        assert bool((values <= limits + 1e-9).all())
        lengths = [space.index(expansion) for expansion in space.expansions if expansion.num_branches == 1]
        assert bool((values[lengths].diff() >= 0).all())
    tree.draft_probs = tree.draft_probs.nan_to_num()
    support = torch.arange(len(target[0]))[(tree.draft_probs > 0).any(0)]
    tree.support, tree.draft_probs = support.to(device), tree.draft_probs[:, support]
    tree.tokens, tree.draft_probs, target = (
        tree.tokens.to(device), tree.draft_probs.float().to(device), target.float().to(device)
    )  # fmt: skip
    before = tree.draft_probs.clone(), target.clone()
    for name, values in label(tree, target, space, list(VERIFIERS)).items():
        torch.testing.assert_close(values, labels[name], atol=2e-5, rtol=0)
    assert torch.equal(before[0], tree.draft_probs)
    assert torch.equal(before[1], target)


def test_one_hot_laws():
    """Greedy decoding with a draft that is always right: every token is accepted."""
    (tree, target), space = one_drawing(vocab=4, limits=(3, 1, 2))
    trunk = tree.trunk
    tree.branches = [[trunk[i + 1 : i + 3]] * 3 for i in range(2)]
    hot = torch.zeros_like(target)
    hot[trunk[:-1], tree.tokens[trunk[1:]]] = 1.0
    tree.draft_probs = hot
    for name, values in label(tree, hot, space, list(VERIFIERS)).items():
        expected = [expansion.max_depth + 1.0 for expansion in space.expansions]
        assert values.tolist() == pytest.approx(expected), name


def test_every_verifier_has_an_estimator():
    assert set(VERIFIERS) <= set(ESTIMATORS)
