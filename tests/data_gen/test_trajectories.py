"""Trajectories: the sampled law, the caches, the stop."""

from collections import Counter

import torch
from scipy.stats import chisquare
from table_model import TableModel

from data_gen.trajectories import Trajectory
from selector.distributions import Sampling, warp

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


def test_prev_is_the_token_before_the_last():
    model = TableModel(5, 0)
    trajectory = Trajectory(model, [4, 0, 1], SAMPLING, torch.Generator().manual_seed(1))
    for _ in range(4):
        context = trajectory.tokens[:-1]
        assert model.committed == context
        torch.testing.assert_close(trajectory.prev_probs, warp(model.logits(context), SAMPLING))
        assert trajectory.prev_hidden.tolist() == [len(context), context[-1], 0]
        trajectory.step()
    assert trajectory.position == 4


def test_one_token_prompt_has_no_prev():
    trajectory = Trajectory(TableModel(5, 0), [2], SAMPLING, None)
    assert trajectory.prev_probs is None
    trajectory.step()
    assert trajectory.prev_probs is not None


def test_end_counts_for_generated_tokens_only():
    trajectory = Trajectory(TableModel(2, 0), [1, 1], SAMPLING, torch.Generator().manual_seed(0), {0, 1})
    assert not trajectory.ended
    trajectory.step()
    assert trajectory.ended
