"""Labels of drawn super-trees: their mean is each action's block efficiency, exactly and by real decoding steps."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch

from data_gen.labelling import draft_forest as supertree
from data_gen.labelling.below import draw_below
from data_gen.labelling.draft_forest import draw_forest
from data_gen.labelling.label_unit import label_forest
from data_gen.labelling.scoring import Scorer
from data_gen.labelling.trajectory import Trajectory
from selector.decoding.sequence import SpeculativeSequence
from selector.decoding.stats import Stopwatch
from selector.distributions import Sampling, warp
from selector.engine.drafting import start_roots
from selector.engine.language_model import prefill
from selector.trees.expansion import ActionSpace, Expansion
from selector.trees.verifiers import MIXED, VERIFIERS
from tests.support.exact_worlds import World
from tests.support.forests import rows_of, super_tree
from tests.support.super_trees import label
from tests.support.table_model import TableModel

SAMPLING = Sampling(temperature=0.9)
BESIDE = Expansion(1, 0, 2), Expansion(2, 1, 1)
BELOW = Expansion(1, 0, 2), Expansion(2, 0, 2)
SPACE = ActionSpace(3, 1, 2, copied=(1, 3), beside=BESIDE, below=BELOW)
EARLIER = (3, 3, 0)  # what could be copied at both roots
PROMPT = [1, 0, 2]
FORESTS, SAMPLES = 4, 40
STEPS = 400
BOUND = 4.5  # standard errors
EXPANSIONS = [Expansion(1, 0, 3), Expansion(2, 0, 2), Expansion(3, 1, 1), Expansion(2, 1, 2), *SPACE.copies]


def table_pair():
    return TableModel(4, 1), TableModel(4, 2, support=[0, 1, 3])


def two_roots(target):
    """A text of one sampled token, with the prompt's last token and that one as roots."""
    trajectory = Trajectory(target, PROMPT, SAMPLING, torch.Generator().manual_seed(3))
    return trajectory, trajectory.sample_roots(2, every=1, max_new_tokens=2)


def start_both(draft, trajectory, roots):
    """The draft at both roots, in one pass."""
    known, end = draft.length, roots[-1].index + 1
    return start_roots(draft, trajectory.tokens[known:end], [root.index - known for root in roots], SAMPLING)


def score(scorer, forest, roots):
    return scorer.forest(forest, scorer.rows_of(roots), [root.probs for root in roots])


def draw_labels(names, forests=FORESTS, change=lambda roots: roots):
    """Per verifier `[2, samples, actions]`: labels of two roots that are drafted and scored together."""
    target, draft = table_pair()
    drawn = []
    for number in range(forests):
        trajectory, roots = two_roots(target)
        prefill(draft, PROMPT[:-2])
        starts = start_both(draft, trajectory, roots)
        seeds = [2 * number, 2 * number + 1]
        forest = draw_forest(draft, starts, SPACE.limits, SAMPLES, SAMPLING, seeds)
        row = len(draft.pending)
        assert row == starts[-1].row + 1 + forest.drafted_rows
        below = draw_below(draft, starts, [EARLIER, EARLIER], row, SPACE, SAMPLES, SAMPLING, seeds)
        scorer = Scorer(trajectory)
        target_laws = score(scorer, forest, change(roots))
        chains = scorer.chains(roots, [EARLIER, EARLIER])
        below_laws = below.score(scorer, chains)
        labels = label_forest(forest, target_laws, SPACE, names, chains)
        below.add_labels(labels, below_laws, chains, SPACE)
        drawn.append(labels)
    return {name: torch.cat([values[name].view(2, SAMPLES, -1) for values in drawn], 1) for name in names}


@pytest.fixture(scope="module")
def labels():
    return draw_labels(list(VERIFIERS))


class TableWorld(World):
    """The table models' laws after a context."""

    def __init__(self, context):
        super().__init__(4, earlier=EARLIER)
        self.context, (self.target, self.draft) = context, table_pair()

    def law(self, kind, prefix):
        context = [*self.context, *prefix]
        if kind == "target":
            return warp(self.target.logits(context), SAMPLING)
        law = torch.zeros(4, dtype=torch.float64)
        law[self.draft.support] = warp(self.draft.logits(context), SAMPLING)
        return law


@pytest.fixture(scope="module")
def exact():
    """Per verifier `[2, EXPANSIONS]`: block efficiency at both roots, summed over all trees."""
    text = two_roots(table_pair()[0])[0].tokens
    found = defaultdict(list)
    for root in range(2):
        world = TableWorld(text[: len(PROMPT) + root])
        trees = {expansion: list(world.trees(expansion)) for expansion in dict.fromkeys([*EXPANSIONS, *BESIDE])}
        for expansion in EXPANSIONS:
            means = {}
            for name, verifier in VERIFIERS.items():
                own = expansion.drafted if getattr(expansion, "beside", False) and name not in MIXED else expansion
                means[name] = sum(weight * float(verifier.expected_tokens(*tree)) for weight, *tree in trees[own])
            for name, mean in means.items():
                found[name].append(mean)
    return {name: torch.tensor(means).view(2, -1) for name, means in found.items()}


def largest_z(values, exact):
    """Of the labels' means at both roots and all `EXPANSIONS`."""
    values = values[..., [SPACE.index(expansion) for expansion in EXPANSIONS]]
    error = values.std(1) / values.shape[1] ** 0.5
    return float(((values.mean(1) - exact).abs() / (error + 1e-6)).max())  # a copied chain has no error but float32's


@pytest.mark.parametrize("name", VERIFIERS)
def test_labels_agree_with_enumeration(labels, exact, name):
    assert largest_z(labels[name], exact[name]) < BOUND


@pytest.mark.parametrize("name", VERIFIERS)
def test_labels_agree_with_decoding_steps(labels, name):
    """Tokens that the decoding loop's own step commits, from a prompt that ends at the second root."""
    target, draft = table_pair()
    text, expansion = two_roots(target)[0].tokens, Expansion(3, 1, 2)
    generator = torch.Generator().manual_seed(1)
    sequence = SpeculativeSequence(target, draft, SAMPLING, SAMPLING, generator, Stopwatch(defaultdict(float)))
    tokens = torch.empty(STEPS, dtype=torch.float64)
    for step in range(STEPS):
        sequence.prefill(text[: len(PROMPT) + 1])
        tokens[step] = len(sequence.step(expansion, VERIFIERS[name]).tokens)
    values = labels[name][1, :, SPACE.index(expansion)]
    error = (tokens.var() / STEPS + values.var() / len(values)) ** 0.5
    assert abs(tokens.mean() - values.mean()) < BOUND * error


def below_the_other_root(roots):
    return [replace(root, index=other.index) for root, other in zip(roots, roots[::-1], strict=True)]


def law_of_the_token_before(roots):
    return [replace(root, probs=root.prev_probs) for root in roots]


@pytest.mark.parametrize("change", [below_the_other_root, law_of_the_token_before])
def test_wrong_target_laws_are_noticed(exact, change):
    assert largest_z(draw_labels(["naive"], change=change)["naive"], exact["naive"]) > BOUND


def test_branches_that_are_not_independent_are_noticed(exact, monkeypatch):
    walks = supertree._draw_paths

    def copied(root, limits, generator):
        trunk, extra = walks(root, limits, generator)
        return trunk, [[replace(walk, uniform=trunk.uniform[walk.start :]) for walk in below] for below in extra]

    monkeypatch.setattr(supertree, "_draw_paths", copied)
    assert largest_z(draw_labels(["naive"], forests=4 * FORESTS)["naive"], exact["naive"]) > BOUND


def test_bounds_and_growth(labels):
    depth = torch.tensor([expansion.max_depth for expansion in SPACE.expansions])
    chains = [SPACE.index(Expansion(1, 0, length)) for length in range(SPACE.limits.max_depth + 1)]
    for values in labels.values():
        mean = values.mean(1)
        assert (mean >= 1 - 1e-9).all()
        assert (mean <= 1 + depth + 1e-9).all()
        assert (mean[:, chains].diff() >= -1e-9).all()


def test_labels_of_a_forest_are_those_of_its_super_trees():
    """Shared nodes and laws change nothing; the two roots' laws are kept apart."""
    target, draft = table_pair()
    trajectory, roots = two_roots(target)
    prefill(draft, PROMPT[:-2])
    starts = start_both(draft, trajectory, roots)
    forest = draw_forest(draft, starts, SPACE.limits, 3, SAMPLING, [5, 6])
    target_laws = score(Scorer(trajectory), forest, roots)
    drafted = ActionSpace(*SPACE.limits)
    together = label_forest(forest, target_laws, drafted, list(VERIFIERS))
    for number in range(6):
        tree, nodes = super_tree(forest, number)
        alone = label(tree, rows_of(forest, target_laws, nodes), drafted, list(VERIFIERS))
        for name in VERIFIERS:
            torch.testing.assert_close(together[name][number], alone[name], atol=1e-6, rtol=0)
