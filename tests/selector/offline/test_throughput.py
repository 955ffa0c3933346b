"""How roots add up to a decoding run: sums by hand, and runs that are played out."""

import numpy as np
import pytest

from selector.offline.throughput import oracle_actions, throughput, token_seconds


def played(lengths: np.ndarray, seconds: np.ndarray) -> float:
    """Tokens a second of one run over a text: the step at position `x` yields `lengths[x]` tokens in `seconds[x]`."""
    position, time = 0, 0.0
    while position < len(lengths):
        time += seconds[position]
        position += int(lengths[position])
    return position / time


def test_sums_by_hand():
    efficiency, seconds = np.array([1.0, 3.0, 2.0]), np.array([1.0, 1.0, 4.0])
    trajectories = np.array([0, 0, 1])
    assert token_seconds(efficiency, seconds, trajectories).tolist() == [0.5, 0.5, 2.0]
    assert throughput(efficiency, seconds, trajectories) == pytest.approx(3 / (0.5 + 0.5 + 2.0))
    both = throughput(np.stack([efficiency, 2 * efficiency], 1), np.stack([seconds, seconds], 1), trajectories)
    assert both == pytest.approx([1.0, 2.0])


@pytest.mark.parametrize("drift", ["none", "between texts"])
def test_it_is_what_runs_realise(drift):
    """Texts of equal length whose tokens are easy or hard by chance, or whole texts that are."""
    rng = np.random.default_rng(0)
    chance = np.full(40, 0.5) if drift == "none" else np.where(np.arange(40) % 2, 0.9, 0.1)
    easy = rng.random((40, 20_000)) < chance[:, None]
    seconds = np.where(easy, 2.0, 1.0)  # easy roots are given longer trees
    lengths = 1 + rng.binomial(np.where(easy, 5, 1), 0.8)
    realised = len(lengths) / sum(1 / played(*text) for text in zip(lengths, seconds, strict=True))
    roots = slice(None, None, 16)
    expected = 1 + 0.8 * np.where(easy, 5, 1)[:, roots]
    trajectories = np.repeat(np.arange(40), expected.shape[1])
    computed = throughput(expected.ravel(), seconds[:, roots].ravel(), trajectories)
    assert computed == pytest.approx(realised, rel=0.01)
    harmonic = expected.size / (seconds[:, roots] / expected).sum()
    assert harmonic < 0.97 * realised


def test_best_actions_weigh_time_by_the_rate():
    """One root yields 1 token in 1 s or 1.8 in 2 s, nine others 4 tokens in 1 s."""
    efficiency, seconds = np.full((10, 2), 4.0), np.ones((10, 2))
    efficiency[0], seconds[0] = [1.0, 2.1], [1.0, 2.0]
    together = np.zeros(10, dtype=np.int64)
    assert oracle_actions(efficiency, seconds, together)[0] == 0, "the second costs time that yields 4 elsewhere"
    assert oracle_actions(efficiency, seconds, np.arange(10))[0] == 1, "alone, 2.1 in 2 s is the faster one"


def test_best_actions_are_best():
    rng = np.random.default_rng(1)
    efficiency, seconds = 1 + rng.random((6, 3)), 1 + rng.random((6, 3))
    together, rows = np.zeros(6, dtype=np.int64), np.arange(6)
    all_choices = np.stack(np.meshgrid(*[range(3)] * 6), -1).reshape(-1, 6)
    rates = [efficiency[rows, choice].sum() / seconds[rows, choice].sum() for choice in all_choices]
    chosen = oracle_actions(efficiency, seconds, together)
    assert efficiency[rows, chosen].sum() / seconds[rows, chosen].sum() == pytest.approx(max(rates))
