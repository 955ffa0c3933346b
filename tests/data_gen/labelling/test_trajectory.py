"""Trajectories: the sampled law, the caches, the stop."""

from collections import Counter

import torch
from scipy.stats import chisquare

from data_gen.labelling.trajectory import Trajectory
from selector.distributions import Sampling, warp
from tests.support.table_model import TableModel

SAMPLING = Sampling(temperature=0.7, top_p=0.9)


def test_law_of_two_tokens():
    model = TableModel(3, 2)
    generator = torch.Generator().manual_seed(0)
    counts = Counter()
    for _ in range(3000):
        trajectory = Trajectory(model, [0, 1], SAMPLING, generator)
        trajectory.step()
        trajectory.step()
        counts[tuple(trajectory.tokens[2:])] += 1
    first = warp(model.logits((0, 1)), SAMPLING)
    expected = {
        (a, b): 3000 * float(first[a]) * float(warp(model.logits((0, 1, a)), SAMPLING)[b])
        for a in range(3)
        for b in range(3)
    }
    assert all(expected[path] > 0 for path in counts)
    possible = [path for path in expected if expected[path] > 0]
    assert chisquare([counts[p] for p in possible], [expected[p] for p in possible], sum_check=False).pvalue > 1e-4


def test_text_is_a_chain_of_pending_rows():
    model = TableModel(5, 0)
    trajectory = Trajectory(model, [4, 0, 1], SAMPLING, torch.Generator().manual_seed(1))
    for step in range(4):
        context = trajectory.tokens[:-1]
        assert model.committed + [token for token, _ in model.pending] == context
        assert [parent for _, parent in model.pending] == list(range(-1, step % 2 - 1))
        torch.testing.assert_close(trajectory.probs, warp(model.logits(context), SAMPLING))
        assert trajectory.hidden.tolist() == [len(context), context[-1], 0]
        trajectory.step()
        if step % 2:
            trajectory.commit()
            assert model.committed == trajectory.tokens[:-1]
    assert trajectory.position == 4


def test_roots_in_portions():
    model = TableModel(5, 0)
    trajectory = Trajectory(model, [4, 0, 1], SAMPLING, torch.Generator().manual_seed(1))
    portions = []
    while roots := trajectory.sample_roots(2, every=3, max_new_tokens=14):
        portions.append([root.position for root in roots])
        for root in roots:
            text = trajectory.tokens
            assert root.index == 2 + root.position
            assert root.prev_hidden.tolist() == [root.index, text[root.index - 1], 0]
            torch.testing.assert_close(root.prev_probs, warp(model.logits(text[: root.index]), SAMPLING))
            torch.testing.assert_close(root.probs, warp(model.logits(text[: root.index + 1]), SAMPLING))
        trajectory.commit()
    assert portions == [[0, 3], [6, 9], [12]]
    assert trajectory.position == 13  # the token after the last root, and no further


def test_one_token_prompt_has_no_law_before_it():
    trajectory = Trajectory(TableModel(5, 0), [2], SAMPLING, None)
    assert trajectory.probs is None
    trajectory.step()
    assert trajectory.probs is not None


def test_end_counts_for_generated_tokens_only():
    trajectory = Trajectory(TableModel(2, 0), [1, 1], SAMPLING, torch.Generator().manual_seed(0), {0, 1})
    assert not trajectory.ended
    trajectory.step()
    assert trajectory.ended
