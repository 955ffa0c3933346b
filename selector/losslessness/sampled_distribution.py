"""Chi-square test of the first tokens of sampled texts against the target's exact distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from selector.decoding.decoder import Decoder
from selector.distributions import Sampling, warp
from selector.engine.causal_model import HuggingFaceModel
from selector.losslessness.finding import DIVERGENT, OK, Finding
from selector.losslessness.reference import logits_of

HORIZON = 3
LEAST = 5.0  # texts that a cell must expect, for the chi-square distribution to hold
BOUND = 1e-4  # a lossless decoder fails once in so many runs with other seeds
OTHER = -1  # stands for all tokens that have no cell of their own


class Cells:
    """A partition of the texts of `HORIZON` tokens by the exact distribution alone, so that every cell expects enough
    texts.

    `probs`: probability by cell; a cell is a prefix, its last token may be `OTHER`. What is too rare for a cell of its
    own is in the cell `()`.
    """

    def __init__(self, target: HuggingFaceModel, prompt: Sequence[int], sampling: Sampling, count: int) -> None:
        self.probs: dict[tuple[int, ...], float] = {(): 0.0}
        self._inner: set[tuple[int, ...]] = set()
        self._target, self._prompt, self._sampling, self._count = target, list(prompt), sampling, count
        self._split((), 1.0)
        if self.probs[()] * count < LEAST:
            smallest = min(filter(None, self.probs), key=self.probs.__getitem__)
            self.probs[()] += self.probs.pop(smallest)

    def _split(self, prefix: tuple[int, ...], mass: float) -> None:
        if len(prefix) == HORIZON:
            self.probs[prefix] = mass
            return
        self._inner.add(prefix)
        logits = logits_of(self._target, [[*self._prompt, *prefix]])[-1]
        probs = warp(logits, self._sampling).double() * mass
        frequent = (probs * self._count >= LEAST).nonzero()[:, 0].tolist()
        for token in frequent:
            self._split((*prefix, token), float(probs[token]))
        rest = mass - sum(float(probs[token]) for token in frequent)
        if rest * self._count >= LEAST:
            other = (*prefix, OTHER)
            self.probs[other] = rest
        else:
            self.probs[()] += max(rest, 0.0)

    def cell_of(self, text: Sequence[int]) -> tuple[int, ...]:
        """The cell of a text of `HORIZON` tokens."""
        depth = 1
        while tuple(text[:depth]) in self._inner:
            depth += 1
        places = (tuple(text[:depth]), (*text[: depth - 1], OTHER))
        return next((cell for cell in places if cell in self.probs), ())

    def p_value(self, texts: Sequence[Sequence[int]]) -> float:
        """Probability of a chi-square statistic of at least this size under the exact distribution."""
        if len(self.probs) < 2:
            return 1.0  # a distribution that is all but certain: nothing to test, which the control will say
        counts = Counter(self.cell_of(text) for text in texts)
        statistic = 0.0
        for cell, probability in self.probs.items():
            expected = probability * len(texts)
            statistic += (counts[cell] - expected) ** 2 / max(expected, 1e-9)
        freedom = torch.tensor((len(self.probs) - 1) / 2, dtype=torch.float64)
        return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))

    def total_variation(self, texts: Sequence[Sequence[int]]) -> float:
        """Total variation between the texts' frequencies and the exact distribution, over the cells."""
        counts = Counter(self.cell_of(text) for text in texts)
        return sum(abs(counts[cell] / len(texts) - probs) for cell, probs in self.probs.items()) / 2


def check_distribution(
    subject: str, decoder: Decoder, prompt: Sequence[int], sampling: Sampling, cells: Cells, seeds: range
) -> Finding:
    """One text of `HORIZON` tokens a seed. Stops early where the distribution is surely another one."""
    texts: list[list[int]] = []
    copied = 0
    looks = {len(seeds) // 4, len(seeds) // 2}
    for seed in seeds:
        generation = decoder.generate(list(prompt), HORIZON, sampling, seed, end_ids=())
        texts.append(generation.tokens)
        copied += generation.stats.accepted_copies
        if len(texts) in looks and cells.p_value(texts) < BOUND / 100:
            break
    chance = cells.p_value(texts)
    detail = (
        f"p = {chance:.2g} (bound {BOUND:g}), total variation {cells.total_variation(texts):.3f}, "
        f"{len(texts)} texts of {HORIZON} tokens, {len(cells.probs)} cells" + f", {copied} tokens copied" * (copied > 0)
    )
    return Finding("sampled distribution", subject, DIVERGENT if chance < BOUND else OK, detail)
