"""The linear model that a selector starts from, in closed form."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold
from torch import Tensor

from selector.network import BLOCKS, Inputs, SelectorNetwork

PENALTIES = np.logspace(1, 5, 9)
FOLDS = 5
SMALLEST_DEVIATION = 0.02


def label_deviation(efficiency: Tensor, standard_error: Tensor, train: Tensor) -> Tensor:
    """`[N, actions]`: how far a label may lie from a prediction, `sqrt(between roots + own error)`.

    The variance between roots is that of the `train [N]` (bool) roots. A root's own error is averaged with its
    action's mean error: the error of a few samples is itself noisy, and low where all of them failed early, so
    that weights from it alone would pull every prediction down.
    """
    variance = standard_error.square()
    typical = variance[train].mean(0)
    between = (efficiency[train].var(0, correction=0) - typical).clamp(min=SMALLEST_DEVIATION**2)
    return torch.sqrt(between + (variance + typical) / 2)


def fit_linear(
    network: SelectorNetwork,
    inputs: Inputs,
    efficiency: Tensor,
    deviation: Tensor,
    times: Tensor,
    prompts: Tensor,
    blocks: Collection[str] = BLOCKS,
    penalty: float | None = None,
) -> float:
    """Fit encoder and linear model on training roots, and return the ridge penalty.

    Args:
        efficiency, deviation, times: labels, their uncertainty (see `label_deviation`) and seconds of a step,
            `[N, actions]`. A root weighs by the inverse of its mean variance.
        prompts: `[N]`; without a `penalty`, the one with the smallest error on prompts that were left out is taken.
            Where features tell nothing, that is the largest, and the model predicts little but the mean.
        blocks: the inputs that are used, of `BLOCKS`; the others are as if they were constant.
    """
    network.encoder.fit(inputs, blocks)
    network.mean_efficiency.copy_(efficiency.mean(0))
    network.prices.copy_(times.mean(0) * (efficiency.mean(0) / times.mean(0)).max())
    encoded, labels = network.encoder(inputs).double().numpy(), efficiency.double().numpy()
    weights = 1 / deviation.double().square().mean(1).numpy()
    weights /= weights.mean()
    model = Ridge(penalty if penalty is not None else _best_penalty(encoded, labels, weights, prompts.numpy()))
    model.fit(encoded, labels, sample_weight=weights)
    network.set_linear(torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_))
    return float(model.alpha)


def _best_penalty(encoded: np.ndarray, labels: np.ndarray, weights: np.ndarray, prompts: np.ndarray) -> float:
    folds = min(FOLDS, len(np.unique(prompts)))
    if folds < 2:
        return float(PENALTIES[-1])
    search = GridSearchCV(
        Ridge(), {"alpha": PENALTIES}, scoring="neg_mean_squared_error", cv=GroupKFold(folds), refit=False
    )
    return float(search.fit(encoded, labels, groups=prompts, sample_weight=weights).best_params_["alpha"])
