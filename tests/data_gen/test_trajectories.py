"""Trajectories: the sampled law, the caches, the stop."""

from collections import Counter

import pytest
import torch
from scipy.stats import chisquare

from data_gen import trajectories
from data_gen.trajectories import Trajectory, extend_chain
from selector.distributions import Sampling, warp

SAMPLING = Sampling(temperature=0.7, top_p=0.9)


def test_law_of_two_tokens(table_model):
    model = table_model(vocab_size=3, seed=2)
    generator = torch.Generator().manual_seed(0)
    counts = Counter()
    for _ in range(3000):
        trajectory = Trajectory(model, [0, 1], SAMPLING, generator)
        trajectory.step()
        trajectory.step()
        counts[tuple(trajectory.tokens[2:])] += 1
    first = warp(model.logits_after((0, 1)), SAMPLING)
    expected = {
        (a, b): 3000 * float(first[a]) * float(warp(model.logits_after((0, 1, a)), SAMPLING)[b])
        for a in range(3)
        for b in range(3)
    }
    assert all(expected[path] > 0 for path in counts)
    possible = [path for path in expected if expected[path] > 0]
    assert chisquare([counts[p] for p in possible], [expected[p] for p in possible], sum_check=False).pvalue > 1e-4


def test_prev_is_the_token_before_the_last(table_model):
    model = table_model()
    trajectory = Trajectory(model, [4, 0, 1], SAMPLING, torch.Generator().manual_seed(1))
    for _ in range(4):
        context = tuple(trajectory.tokens[:-1])
        assert model.context == context
        torch.testing.assert_close(trajectory.prev_probs, warp(model.logits_after(context), SAMPLING))
        torch.testing.assert_close(trajectory.prev_hidden, model.hidden_after(context))
        trajectory.step()
    assert trajectory.position == 4


def test_one_token_prompt_has_no_prev(table_model):
    trajectory = Trajectory(table_model(), [2], SAMPLING, None)
    assert trajectory.prev_probs is None
    trajectory.step()
    assert trajectory.prev_probs is not None


def test_end_counts_for_generated_tokens_only(table_model):
    trajectory = Trajectory(table_model(vocab_size=2), [1, 1], SAMPLING, torch.Generator().manual_seed(0), {0, 1})
    assert not trajectory.ended
    trajectory.step()
    assert trajectory.ended


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("last_rows", [1, 2])
def test_extend_chain_in_pieces(table_model, monkeypatch, length, last_rows):
    monkeypatch.setattr(trajectories, "PREFILL_ROWS", 3)
    model = table_model()
    tokens = [index % 5 for index in range(length)]
    scores = extend_chain(model, tokens, last_rows)
    rows = min(last_rows, length)
    assert len(scores.logits) == rows == len(model.pending)
    torch.testing.assert_close(scores.logits[-1], model.logits_after(tuple(tokens)))
    assert model.context == tuple(tokens[:-rows])
