"""Drafted trees: their shape, their law, and the caches after a commit."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from transformers import LlamaForCausalLM

from selector.distributions import Sampling, warp
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.drafting import draft_tree, start_root
from selector.engine.scoring import score_tree
from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Expansion
from tests.support.table_model import TableModel

EXPANSIONS = [Expansion(*numbers) for numbers in [(1, 0, 0), (1, 0, 3), (3, 0, 2), (4, 2, 3), (2, 1, 1)]]
PROMPT = [3, 1, 2]


def drafted(draft: TableModel, expansion: Expansion, seed: int, sampling: Sampling | None = None) -> DraftTree:
    draft.reset()
    draft.extend(torch.tensor(PROMPT[:-1]), range(-1, len(PROMPT) - 2))
    draft.keep(range(len(PROMPT) - 1))
    sampling = sampling or Sampling()
    return draft_tree(
        draft, start_root(draft, PROMPT[-1:], sampling), expansion, sampling, torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("expansion", EXPANSIONS, ids=str)
@pytest.mark.parametrize("support", [None, [0, 2, 3]])
def test_shape_and_laws(expansion: Expansion, support: list[int] | None) -> None:
    draft, sampling = TableModel(5, seed=1, support=support), Sampling(0.7, 0.9)
    for seed in range(10):
        tree = drafted(draft, expansion, seed, sampling)
        topology = tree.topology
        assert topology.depths == sorted(topology.depths)
        assert max(topology.depths) == expansion.max_depth
        assert len(tree.draft_probs) == len(tree.draft_hidden) == topology.num_inner
        multiplicity = [1] * len(topology)
        for node in range(topology.num_inner):
            expected = expansion.num_branches if topology.depths[node] >= expansion.trunk_length else 1
            assert topology.depths[node] > expansion.trunk_length or len(topology.children[node]) == expected
            if topology.depths[node] > expansion.trunk_length:
                assert len(topology.children[node]) == multiplicity[node]
            for child in topology.children[node]:
                assert topology.parents[child] == node
            for child, count in Counter(topology.children[node]).items():
                multiplicity[child] = count
            siblings = [int(tree.tokens[child]) for child in topology.distinct_children(node)]
            assert len(set(siblings)) == len(siblings), "equal tokens below one node are one node"
            context = PROMPT + tree.path_tokens(node)
            torch.testing.assert_close(tree.draft_probs[node], warp(draft.logits(context), sampling))


def test_merged_branches_have_the_law_of_independent_branches() -> None:
    """Chi-square over ordered pairs of branches of length 2."""
    draft, sampling = TableModel(3, seed=2), Sampling()
    counts: Counter[tuple[tuple[int, int], ...]] = Counter()
    for seed in range(4000):
        tree = drafted(draft, Expansion(2, 0, 2), seed)
        branches = [tree.path_tokens(node) for node, depth in enumerate(tree.topology.depths) if depth == 2]
        counts[tuple(sorted(map(tuple, branches)))] += 1  # type: ignore[arg-type]
    law = {}
    for first in range(3):
        for second in range(3):
            chance = warp(draft.logits(PROMPT), sampling)[first]
            law[first, second] = float(chance * warp(draft.logits([*PROMPT, first]), sampling)[second])
    statistic = freedom = 0.0
    for one in law:
        for other in law:
            if one <= other:
                key = (one,) if one == other else (one, other)
                expected = 4000 * law[one] * law[other] * (1 if one == other else 2)
                if expected > 4:
                    statistic += (counts[key] - expected) ** 2 / expected
                    freedom += 1
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


def nodes_to_test(tree: DraftTree) -> list[int]:
    """The root, the last inner node, and the last leaf: not the first branch."""
    return sorted({0, tree.topology.num_inner - 1 if tree.topology.num_inner else 0, len(tree.topology) - 1})


@pytest.mark.parametrize("expansion", EXPANSIONS, ids=str)
@pytest.mark.parametrize("context", [1, 2, 64, 129])
def test_caches_after_a_commit(
    target: HuggingFaceModel,
    draft: HuggingFaceModel,
    target_llama: LlamaForCausalLM,
    expansion: Expansion,
    context: int,
) -> None:
    """Both caches equal caches built token by token, also where the accepted branch is not the first."""
    generator, sampling = torch.Generator().manual_seed(context), Sampling(1.5)
    prompt = torch.randint(0, 64, (context,), generator=generator).tolist()
    for choice in range(3):
        for model in (target, draft):
            model.reset()
            if context > 1:
                model.extend(torch.tensor(prompt[:-1]), range(-1, context - 2), last_rows=1)
                model.keep(range(context - 1))
        root = start_root(draft, prompt[-1:], sampling)
        tree = draft_tree(draft, root, expansion, sampling, generator)
        scored = score_tree(target, tree, sampling)
        assert tree.draft_hidden is not None
        nodes = nodes_to_test(tree)
        node = nodes[min(choice, len(nodes) - 1)]
        path = tree.topology.path(node)
        target.keep([0, *path])
        draft.keep([root.row, *(root.row + above for above in path if above < tree.topology.num_inner)])
        committed = prompt + tree.path_tokens(node)
        assert target.length == len(committed)
        for model, tokens in ((target, committed), (draft, committed[: draft.length])):
            fresh = HuggingFaceModel(model.model)
            for token in tokens:
                scores = fresh.extend(torch.tensor([token]), [-1])
                fresh.keep([0])
            for kept, built in zip(model._cache.buffers, fresh._cache.buffers, strict=True):
                rows = slice(0, len(tokens))
                torch.testing.assert_close(kept.data[:, :, rows], built.data[:, :, rows], atol=1e-4, rtol=1e-4)
            if model is target:
                law, hidden = scored.target_probs[node], scored.hidden[node]
            elif node < tree.topology.num_inner:
                law, hidden = tree.draft_probs[node], tree.draft_hidden[node]
            else:
                continue
            torch.testing.assert_close(law, warp(scores.logits[0], sampling), atol=1e-4, rtol=1e-3)
            torch.testing.assert_close(hidden, scores.hidden[0], atol=1e-4, rtol=1e-3)
