"""Tokens and seconds a step of arms that took turns, held against what all of them met alike.

Regression adjustment: what a covariate that no arm can change tells about a step is taken off each arm's mean (CUPED,
Deng et al., WSDM 2013; Lin, arXiv 1208.2301). Arms of one coin meet the same texts, and the text follows the target's
distribution whatever arm takes a step: so does what comes after a root, and how far a copy would have agreed with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from selector.config import LONGEST_COPY
from selector.features import Match
from selector.statistics import Floats, Ints, prompt_sums

AGREED = (1, 2, 4, 8, LONGEST_COPY)  # tokens up to which a copy's agreement is counted
ENOUGH = 30  # steps of every arm for each covariate; with fewer, means are taken as they are


def covariates(text: Sequence[int], root: int, match: Match | None) -> tuple[float, ...]:
    """Of the step after the root token `text[root]`: its match, and for how long a copy agrees with `text`."""
    if match is None:
        return (0.0,) * (3 + len(AGREED))
    pairs = zip(text[match.start : match.start + LONGEST_COPY], text[root + 1 :], strict=False)
    agreed = next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    length = min(LONGEST_COPY, len(text) - root - 1) if agreed is None else agreed
    return (1.0, float(np.log2(1 + match.length)), match.recent, *(float(min(length, most)) for most in AGREED))


class AdjustedMeans:
    """Means over the steps of an arm, in each of `counts [resamples, prompts]`.

    `arm`, `prompt [steps]` are numbers from 0; `known [steps, covariates]`.
    """

    def __init__(self, arm: Ints, prompt: Ints, known: Floats, arms: int, counts: Floats) -> None:
        self._arm, self._prompt, self._counts = arm, prompt, counts
        enough = np.bincount(arm, minlength=arms).min() >= ENOUGH * (1 + known.shape[1])
        self._rows = np.concatenate([np.ones((len(arm), 1)), known if enough else known[:, :0]], 1)
        met = self._sums(self._rows, prompt)
        with np.errstate(invalid="ignore"):  # a resample without any step has no means
            self._met = met / met[:, :1]

    def of(self, arm: int, *values: Floats) -> list[Floats]:
        """`[resamples]` for each of `values [steps]`; NaN where a resample has no step of the arm."""
        mine = self._arm == arm
        rows, prompt = self._rows[mine], self._prompt[mine]
        squares = self._sums(rows[:, :, None] * rows[:, None], prompt)
        inverse = np.linalg.pinv(squares, hermitian=True)
        slopes = [inverse @ self._sums(rows * own[mine][:, None], prompt)[..., None] for own in values]
        return [np.where(squares[:, 0, 0] > 0, (self._met * slope[..., 0]).sum(-1), np.nan) for slope in slopes]

    def _sums(self, values: Floats, prompt: Ints) -> Floats:
        """`values [steps, ..]` summed over the steps of every resample."""
        flat = values.reshape(len(values), math.prod(values.shape[1:]))
        sums = np.stack([prompt_sums(column, prompt, self._counts.shape[1]) for column in flat.T], 1)
        drawn: Floats = (self._counts @ sums).reshape(len(self._counts), *values.shape[1:])
        return drawn
