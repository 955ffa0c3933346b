"""Sampling, purity, extreme laws, and equalities between verifiers."""

from collections import Counter

import pytest
import torch

from selector.errors import UserError
from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Expansion
from selector.trees.topology import build_topology
from selector.trees.verifiers import VERIFIERS, get_verifier
from tests.support.exact_worlds import World

SAMPLES = 2000
TREES = [((), ((0, 1), (2, 0), (0, 2))), ((1,), ((1, 2), (1, 2), (0, 1)))]


@pytest.mark.parametrize("name", VERIFIERS)
def test_frequencies_match_the_outcome(name, monkeypatch):
    world = World(3, seed=21, zeros="t")
    for (trunk, branches), dtype in zip(TREES, (torch.float32, torch.float64), strict=True):
        tree, target = world.tree(trunk, branches)
        tree.draft_probs, target = tree.draft_probs.to(dtype), target.to(dtype)
        outcome = VERIFIERS[name].distribution(tree, target)
        decision = VERIFIERS[name].decide(tree, target)  # deterministic: once is enough
        monkeypatch.setattr(VERIFIERS[name], "decide", lambda *_, decision=decision: decision)
        generator = torch.Generator().manual_seed(5)
        drawn = Counter(tuple(VERIFIERS[name].verify(tree, target, generator)) for _ in range(SAMPLES))
        monkeypatch.undo()
        for node, row in enumerate(outcome.tolist()):
            for token, probability in enumerate(row):
                deviation = (probability * (1 - probability) / SAMPLES) ** 0.5
                frequency = drawn[node, token] / SAMPLES
                assert abs(frequency - probability) <= 4.5 * deviation + 1e-12, (node, token)


@pytest.mark.parametrize("name", VERIFIERS)
def test_same_seed_same_answer_and_inputs_unchanged(name):
    tree, target = World(3, seed=22).tree((1,), ((0, 1), (0, 2), (2, 2)))
    before = target.clone(), tree.draft_probs.clone(), tree.tokens.clone(), str(tree.topology)
    answers = [VERIFIERS[name].verify(tree, target, torch.Generator().manual_seed(3)) for _ in range(2)]
    VERIFIERS[name].distribution(tree, target)
    VERIFIERS[name].expected_tokens(tree, target)
    assert answers[0] == answers[1]
    assert torch.equal(target, before[0])
    assert torch.equal(tree.draft_probs, before[1])
    assert torch.equal(tree.tokens, before[2])
    assert str(tree.topology) == before[3]


@pytest.mark.parametrize("name", VERIFIERS)
def test_single_paths(name):
    """With one branch all are Naive (NSS is not); Traversal, GBV and RBV are BV; on one token BV is Naive too."""
    naive = VERIFIERS["naive"]
    for seed in range(3):
        world = World(4, seed=seed, zeros="td")
        for _, tree, target in world.trees(Expansion(1, 0, 1)):
            if name != "nss":
                torch.testing.assert_close(VERIFIERS[name].distribution(tree, target), naive.distribution(tree, target))
        like = VERIFIERS["bv"] if name in ("traversal", "bv", "gbv", "rbv") else naive
        for _, tree, target in world.trees(Expansion(1, 0, 2)):
            if name != "nss":
                torch.testing.assert_close(VERIFIERS[name].distribution(tree, target), like.distribution(tree, target))


def test_block_verification_is_never_below_naive():
    for seed in range(6):
        world = World(3, seed=seed)
        expansion = Expansion(1, 0, 3)
        block, naive = (world.expected_tokens(VERIFIERS[name], expansion) for name in ("traversal", "naive"))
        assert block >= naive - 1e-12


def extreme_tree(kind: str, dtype: torch.dtype, vocab: int = 5) -> tuple[DraftTree, torch.Tensor]:
    """A tree of two levels whose laws are of an extreme kind."""
    generator = torch.Generator().manual_seed(4)
    branches = [[3, 3], [3, 3], [3, 3]] if kind == "one-hot draft" else [[2, 3], [3, 2], [2, 2]]
    topology, tokens = build_topology([], branches)
    target = torch.softmax(2 * torch.randn(len(tokens), vocab, generator=generator), -1).to(dtype)
    draft = torch.softmax(2 * torch.randn(topology.num_inner, vocab, generator=generator), -1).to(dtype)
    if kind == "one-hot target":
        target = torch.eye(vocab, dtype=dtype)[torch.tensor([3, 3, 2, 1, 1, 1, 1])[: len(tokens)]]
    elif kind == "one-hot draft":
        draft = torch.eye(vocab, dtype=dtype)[[3] * topology.num_inner]
    elif kind == "equal":
        target[: topology.num_inner] = draft
    elif kind == "disjoint":
        target[:, 2:] = 0.0
        draft[:, :2] = 0.0
    elif kind == "top-p":
        target[:, 2] = 0.0
    elif kind == "tiny":
        draft[:, 2:4] = torch.tensor([1e-30, 1e-38], dtype=dtype)
        target[:, 2:4] = torch.tensor([1e-38, 1e-30], dtype=dtype)
    if kind != "one-hot target":
        target = target / target.sum(-1, keepdim=True)
        draft = draft / draft.sum(-1, keepdim=True)
    return DraftTree(topology, torch.tensor(tokens), draft), target


def on_device(tree, target, device):
    """Everything that a model on that device would have made there."""
    tree.tokens, tree.draft_probs = tree.tokens.to(device), tree.draft_probs.to(device)
    tree.support = None if tree.support is None else tree.support.to(device)
    return tree, target.to(device)


KINDS = ["one-hot target", "one-hot draft", "equal", "disjoint", "top-p", "tiny"]


@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_extreme_laws(name, kind, dtype, device):
    tree, target = on_device(*extreme_tree(kind, dtype), device)
    outcome = VERIFIERS[name].distribution(tree, target)
    assert bool(outcome.isfinite().all())
    assert bool((outcome >= 0).all())
    assert not bool(outcome[target == 0].any())
    assert abs(float(outcome.double().sum()) - 1) < 1e-5
    generator = torch.Generator(device).manual_seed(6)
    for _ in range(10):
        node, bonus = VERIFIERS[name].verify(tree, target, generator)
        assert target[node, bonus] > 0
    accepted = outcome.sum(1)
    path = [0, *(tree.topology.path(int(accepted.argmax())))]
    if kind == "one-hot target" and name not in ("naive", "bv"):
        # The argmax chain 3, 2 was drafted second: all multi-path algorithms find it.
        assert [int(tree.tokens[node]) for node in path[1:]] == [3, 2]
        assert float(accepted.max()) > 1 - 1e-6
    if kind == "disjoint":
        assert float(accepted[0]) > 1 - 1e-6
    if kind == "equal" and name not in ("nss", "gbv"):
        depths = torch.tensor(tree.topology.depths, device=device)
        assert float(accepted[depths == 2].sum()) > 1 - 1e-5


@pytest.mark.parametrize("name", VERIFIERS)
def test_reduced_support_changes_nothing(name, device):
    tree, target = extreme_tree("generic", torch.float64)
    tree.draft_probs[:, :2] = 0.0
    tree.draft_probs /= tree.draft_probs.sum(-1, keepdim=True)
    whole = VERIFIERS[name].distribution(tree, target)
    tree.support, tree.draft_probs = torch.arange(2, 5), tree.draft_probs[:, 2:5]
    tree, target = on_device(tree, target, device)
    torch.testing.assert_close(VERIFIERS[name].distribution(tree, target).cpu(), whole, atol=1e-14, rtol=0)


@pytest.mark.parametrize("name", VERIFIERS)
def test_float32_laws_that_sum_to_one_within_rounding(name):
    tree, target = extreme_tree("generic", torch.float64)
    exact = VERIFIERS[name].distribution(tree, target)
    tree.draft_probs, target = (tree.draft_probs * (1 - 5e-7)).float(), (target * (1 + 5e-7)).float()
    torch.testing.assert_close(VERIFIERS[name].distribution(tree, target).double(), exact, atol=1e-5, rtol=0)


def test_names():
    assert {"nss", "naive", "specinfer", "traversal"} <= set(VERIFIERS)
    assert all(verifier.name == name for name, verifier in VERIFIERS.items())
    with pytest.raises(UserError, match="choose one of nss, naive"):
        get_verifier("bogus")
