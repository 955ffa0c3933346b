"""Is the predicted block efficiency right? Reliability by decile of the prediction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selector.statistics import Floats


class Bin(NamedTuple):
    """Roots and actions of similar prediction: means of prediction and label, and how many they are."""

    predicted: float
    observed: float
    size: int


def reliability(predicted: Floats, observed: Floats, bins: int = 10) -> list[Bin]:
    """Cut at the deciles of `predicted`; arrays of any equal shape. Fewer bins where predictions coincide."""
    predicted, observed = predicted.ravel(), observed.ravel()
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, bins + 1)[1:-1]))
    place = np.digitize(predicted, edges)
    return [
        Bin(float(predicted[place == b].mean()), float(observed[place == b].mean()), int((place == b).sum()))
        for b in np.unique(place)
    ]
