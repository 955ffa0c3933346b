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
LEAST = 5.0  # texts that a cell must expect, for the chi-square law to hold
BOUND = 1e-4  # a lossless decoder fails once in so many runs with other seeds
OTHER = -1  # stands for all tokens that have no cell of their own


class Cells:
    """A partition of the texts of `HORIZON` tokens by the exact law alone, so that every cell expects enough texts.

    `law`: probability by cell; a cell is a prefix, its last token may be `OTHER`. What is too rare for a cell of its
    own is in the cell `()`.
    """

    def __init__(self, target: HuggingFaceModel, prompt: Sequence[int], sampling: Sampling, count: int) -> None:
        self.law: dict[tuple[int, ...], float] = {(): 0.0}
        self._inner: set[tuple[int, ...]] = set()
        self._target, self._prompt, self._sampling, self._count = target, list(prompt), sampling, count
        self._split((), 1.0)
        if self.law[()] * count < LEAST:
            smallest = min(filter(None, self.law), key=self.law.__getitem__)
            self.law[()] += self.law.pop(smallest)

    def _split(self, prefix: tuple[int, ...], mass: float) -> None:
        if len(prefix) == HORIZON:
            self.law[prefix] = mass
            return
        self._inner.add(prefix)
        logits = logits_of(self._target, [[*self._prompt, *prefix]])[-1]
        law = warp(logits, self._sampling).double() * mass
        frequent = (law * self._count >= LEAST).nonzero()[:, 0].tolist()
        for token in frequent:
            self._split((*prefix, token), float(law[token]))
        rest = mass - sum(float(law[token]) for token in frequent)
        if rest * self._count >= LEAST:
            other = (*prefix, OTHER)
            self.law[other] = rest
        else:
            self.law[()] += max(rest, 0.0)

    def cell_of(self, text: Sequence[int]) -> tuple[int, ...]:
        """The cell of a text of `HORIZON` tokens."""
        depth = 1
        while tuple(text[:depth]) in self._inner:
            depth += 1
        places = (tuple(text[:depth]), (*text[: depth - 1], OTHER))
        return next((cell for cell in places if cell in self.law), ())

    def p_value(self, texts: Sequence[Sequence[int]]) -> float:
        """Probability of a chi-square statistic of at least this size under the exact law."""
        if len(self.law) < 2:
            return 1.0  # a law that is all but certain: nothing to test, which the control will say
        counts = Counter(self.cell_of(text) for text in texts)
        statistic = 0.0
        for cell, probability in self.law.items():
            expected = probability * len(texts)
            statistic += (counts[cell] - expected) ** 2 / max(expected, 1e-9)
        freedom = torch.tensor((len(self.law) - 1) / 2, dtype=torch.float64)
        return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))

    def total_variation(self, texts: Sequence[Sequence[int]]) -> float:
        """Total variation between the texts' frequencies and the exact law, over the cells."""
        counts = Counter(self.cell_of(text) for text in texts)
        return sum(abs(counts[cell] / len(texts) - law) for cell, law in self.law.items()) / 2


def check_law(
    subject: str, decoder: Decoder, prompt: Sequence[int], sampling: Sampling, cells: Cells, seeds: range
) -> Finding:
    """One text of `HORIZON` tokens a seed. Stops early where the law is surely another one."""
    texts: list[list[int]] = []
    looks = {len(seeds) // 4, len(seeds) // 2}
    for seed in seeds:
        texts.append(decoder.generate(list(prompt), HORIZON, sampling, seed, end_ids=()).tokens)
        if len(texts) in looks and cells.p_value(texts) < BOUND / 100:
            break
    chance = cells.p_value(texts)
    detail = (
        f"p = {chance:.2g} (bound {BOUND:g}), total variation {cells.total_variation(texts):.3f}, "
        f"{len(texts)} texts of {HORIZON} tokens, {len(cells.law)} cells"
    )
    return Finding("sampled law", subject, DIVERGENT if chance < BOUND else OK, detail)
