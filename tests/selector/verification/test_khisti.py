"""Khisti's small program: no duels could let the winner's law cover more of the target."""

from __future__ import annotations

import itertools

import pytest
import torch

from selector.verification.khisti import play


def most_covered(target: list[float], draft: list[float]) -> float:
    """Optimum of `sum min(p, r)` in a first round whose top holds every token: the minimum over subsets `A` of
    `p(A) + 1 - R_in(A)`, `R_in` = mass that can only go to `A`, since both drafts lie in it."""
    tokens = range(len(target))
    subsets = itertools.chain.from_iterable(itertools.combinations(tokens, size) for size in range(len(target) + 1))
    return min(sum(target[t] for t in subset) + 1 - sum(draft[t] for t in subset) ** 2 for subset in subsets)


@pytest.mark.parametrize("vocab", [2, 3, 4, 5])
def test_the_first_round_covers_the_most(vocab: int) -> None:
    generator = torch.Generator().manual_seed(vocab)
    for trial in range(150):
        own, other = 2 * torch.randn(2, vocab, generator=generator, dtype=torch.float64)
        closeness = trial % 10 / 9  # from independent laws to equal ones
        target, draft = torch.softmax(own, 0), torch.softmax(closeness * own + (1 - closeness) * other, 0)
        covered = float(torch.minimum(target, play(target, draft, draft).probs).sum())
        assert covered == pytest.approx(most_covered(target.tolist(), draft.tolist()), abs=1e-9)
