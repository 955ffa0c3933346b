"""Labels of drawn super-trees: their mean is each action's block efficiency, exactly and by real decoding steps."""

import pytest
import torch
from table_model import TableModel

from data_gen.roots import label_forest, score_forest
from data_gen.supertree import draw_forest
from selector.distributions import Sampling, warp
from selector.engine.drafting import draft_tree, start_root
from selector.engine.scoring import score_tree
from selector.trees.expansion import ActionSpace, Expansion
from selector.trees.verifiers import get_verifier

SAMPLING = Sampling(temperature=0.9)
SPACE = ActionSpace(3, 2, 2)
CONTEXT = [1, 0, 2]
VERIFIERS = ["nss", "naive", "specinfer", "traversal"]
SAMPLES = 1200


@pytest.fixture(scope="module")
def pair():
    target, draft = TableModel(4, 1), TableModel(4, 2, support=[0, 1, 3])
    target.committed = CONTEXT[:-1]
    return target, draft


@pytest.fixture(scope="module")
def labels(pair):
    """Per verifier `[samples, actions]`. Every forest has one super-tree: others would lend laws to its leaves."""
    target, draft = pair
    generator = torch.Generator().manual_seed(0)
    drawn = []
    for _ in range(SAMPLES):
        draft.reset()
        forest = draw_forest(draft, start_root(draft, CONTEXT, SAMPLING), SPACE.limits, 1, SAMPLING, generator)
        target_probs, _ = score_forest(target, forest, SAMPLING)
        target.keep([])
        drawn.append(label_forest(forest, target_probs, SPACE, VERIFIERS))
    return {name: torch.cat([values[name] for values in drawn]) for name in VERIFIERS}


def laws(pair, context):
    target, draft = pair
    draft_law = torch.zeros(4, dtype=torch.float64)
    draft_law[draft.support] = warp(draft.logits(context), SAMPLING)
    return warp(target.logits(context), SAMPLING), draft_law


def chain_depths(pair, context, depth):
    """`P(tau >= 1), ..` of a chain by enumeration: `sum over paths of prod min(target, draft)`."""
    overlap = torch.minimum(*laws(pair, context))
    found = torch.zeros(depth, dtype=torch.float64)
    found[0] = overlap.sum()
    if depth > 1:
        for token in range(4):
            if overlap[token] > 0:
                found[1:] += overlap[token] * chain_depths(pair, [*context, token], depth - 1)
    return found


def test_chains_by_enumeration(pair, labels):
    expected = 1 + chain_depths(pair, CONTEXT, SPACE.limits.max_depth).cumsum(0)
    for name in ("naive", "specinfer"):
        for length in range(1, SPACE.limits.max_depth + 1):
            values = labels[name][:, SPACE.index(Expansion(1, 0, length))]
            error = values.std() / SAMPLES**0.5
            assert abs(values.mean() - expected[length - 1]) < 4.5 * error + 1e-9, (name, length)


@pytest.mark.parametrize("name", VERIFIERS)
@pytest.mark.parametrize("expansion", [Expansion(1, 0, 4), Expansion(3, 0, 2), Expansion(2, 1, 2), Expansion(3, 2, 1)])
def test_labels_agree_with_decoding_steps(pair, labels, name, expansion):
    """Trees drawn as decoding draws them, with the verifier's own expectation for each."""
    target, draft = pair
    generator, verifier = torch.Generator().manual_seed(1), get_verifier(name)
    tokens = []
    for _ in range(500):
        draft.reset()
        tree = draft_tree(draft, start_root(draft, CONTEXT, SAMPLING), expansion, SAMPLING, generator)
        tokens.append(float(verifier.expected_tokens(tree, score_tree(target, tree, SAMPLING).target_probs)))
        target.keep([])
    steps, values = torch.tensor(tokens, dtype=torch.float64), labels[name][:, SPACE.index(expansion)]
    error = (steps.var() / len(steps) + values.var() / SAMPLES) ** 0.5
    assert abs(steps.mean() - values.mean()) < 4.5 * error


def test_bounds_and_growth(labels):
    depth = torch.tensor([expansion.max_depth for expansion in SPACE.expansions])
    chains = [SPACE.index(Expansion(1, 0, length)) for length in range(SPACE.limits.max_depth + 1)]
    for values in labels.values():
        mean = values.mean(0)
        assert (mean >= 1 - 1e-9).all()
        assert (mean <= 1 + depth + 1e-9).all()
        assert (mean[chains].diff() >= -1e-9).all()
