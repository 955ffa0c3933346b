"""Ridge model that a selector starts from, in closed form (Hoerl and Kennard 1970)."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from sklearn.model_selection import GroupKFold
from torch import Tensor

from selector.network.network import Available, Inputs, SelectorNetwork, matches
from selector.statistics import Floats, Ints

PENALTIES = np.logspace(1, 5, 9)
GAINS = np.linspace(1, 2, 11)
FOLDS = 5
SMALLEST_SPREAD = 0.02


def label_deviation(
    efficiency: Float[Tensor, "roots actions"],
    standard_error: Float[Tensor, "roots actions"],
    train: Bool[Tensor, " roots"],
) -> Float[Tensor, "roots actions"]:
    """How far a label may lie from a prediction, `sqrt(between roots + own error)`.

    The variance between roots is that of the `train [N]` (bool) roots. A root's own error is averaged with its
    action's mean error: the error of a few samples is itself noisy, and low where all of them failed early, so
    that weights from it alone would pull every prediction down.
    """
    variance = standard_error.square()
    typical = variance[train].mean(0)
    between = (efficiency[train].var(0, correction=0) - typical).clamp(min=SMALLEST_SPREAD**2)
    return torch.sqrt(between + (variance + typical) / 2)


def fit_linear(
    network: SelectorNetwork,
    inputs: Inputs,
    efficiency: Float[Tensor, "roots actions"],
    deviation: Float[Tensor, "roots actions"],
    times: Float[Tensor, "roots actions"],
    prompts: Int[Tensor, " roots"],
) -> float:
    """Fit encoder and linear model on training roots, and return the ridge penalty; see `fit_weights`."""
    network.encoder.fit(inputs)
    matched = matches(inputs.scalars)[:, 0] > 0
    return fit_weights(network, network.encoder(inputs), efficiency, deviation, times, prompts, matched)


def fit_weights(
    network: SelectorNetwork,
    encoded: Float[Tensor, "roots width"],
    efficiency: Float[Tensor, "roots actions"],
    deviation: Float[Tensor, "roots actions"],
    times: Float[Tensor, "roots actions"],
    prompts: Int[Tensor, " roots"],
    matched: Bool[Tensor, " roots"],
) -> float:
    """Fit the linear model on training roots that are encoded already, and return the ridge penalty.

    Args:
        encoded: what the encoder makes of the roots, `[N, width]`; a column of zeros gets no weight.
        efficiency, deviation, times: labels, their uncertainty (see `label_deviation`) and seconds of a step,
            `[N, actions]`. A root weighs by the inverse of its mean variance.
        prompts: `[N]`; the penalty with the smallest error on prompts that were left out is taken. Where features
            tell nothing, that is the largest, and the model predicts little but the mean.
        matched: `[N]`: roots where the text has an earlier match; copies are fitted on these alone.
    """
    network.mean_efficiency.copy_(efficiency.mean(0))
    network.prices.copy_(times.mean(0) * (efficiency.mean(0) / times.mean(0)).max())
    drafted = network.always
    slopes, constants, penalty = _fit(encoded, efficiency[:, drafted], deviation[:, drafted], prompts)
    weight, bias = torch.zeros_like(network.linear_weight), network.mean_efficiency.clone()
    weight[drafted], bias[drafted] = slopes, constants
    if not drafted.all() and bool((prompts[matched] != prompts[matched][:1]).any()):
        rows = encoded[matched], efficiency[matched][:, ~drafted], deviation[matched][:, ~drafted], prompts[matched]
        weight[~drafted], bias[~drafted], _ = _fit(*rows)
    network.set_linear(weight, bias)
    network.gain.fill_(_gain(network, encoded, efficiency, times, matched))
    network.prices.mul_(network.gain)
    return penalty


def _gain(
    network: SelectorNetwork,
    encoded: Float[Tensor, "roots width"],
    efficiency: Float[Tensor, "roots actions"],
    times: Float[Tensor, "roots actions"],
    matched: Bool[Tensor, " roots"],
) -> float:
    """How many times the best static action's rate time is worth: that of the choices which then yield most."""
    here = Available(network.always, network.matched, network.parts)
    linear = network.linear_bias + encoded @ network.linear_weight.T
    predicted = here.of(linear.clamp(min=1).minimum(network.longest), matched[:, None]).double()
    prices = times * (efficiency.double().mean(0) / times).amax(1, keepdim=True)

    def rate(gain: float) -> float:
        chosen = (predicted - gain * prices).argmax(1, keepdim=True)
        return float(efficiency.gather(1, chosen).sum() / times.gather(1, chosen).sum())

    return float(max(GAINS, key=rate))


def _fit(
    encoded: Float[Tensor, "roots width"],
    efficiency: Float[Tensor, "roots actions"],
    deviation: Float[Tensor, "roots actions"],
    prompts: Int[Tensor, " roots"],
) -> tuple[Float[Tensor, "actions width"], Float[Tensor, " actions"], float]:
    """Slopes, constants and penalty of the ridge regression of some actions."""
    features, labels = encoded.double().numpy(), efficiency.double().numpy()
    weights = 1 / deviation.double().square().mean(1).numpy()
    weights /= weights.mean()
    penalty = _best_penalty(features, labels, weights, prompts.numpy())
    slopes, constants = _ridge(features, labels, weights, np.array([penalty]))
    return torch.from_numpy(slopes[0].T).float(), torch.from_numpy(constants[0]).float(), penalty


def _best_penalty(features: Floats, labels: Floats, weights: Floats, prompts: Ints) -> float:
    """The penalty of smallest error in cross-validation by prompt; roots weigh in the error as they do in the fit."""
    folds = min(FOLDS, len(np.unique(prompts)))
    if folds < 2:
        return float(PENALTIES[-1])
    errors = np.zeros(len(PENALTIES))
    for train, test in GroupKFold(folds).split(features, groups=prompts):
        slopes, constants = _ridge(features[train], labels[train], weights[train], PENALTIES)
        for number, (slope, constant) in enumerate(zip(slopes, constants, strict=True)):
            squares = np.square(features[test] @ slope + constant - labels[test]).mean(1)
            errors[number] += np.average(squares, weights=weights[test])
    return float(PENALTIES[errors.argmin()])


def _ridge(features: Floats, labels: Floats, weights: Floats, penalties: Floats) -> tuple[Floats, Floats]:
    """Slopes `[penalties, features, actions]` and constants `[penalties, actions]` of weighted ridge regressions.

    All penalties share one eigendecomposition, which makes choosing among them nearly free.
    """
    centre, mean = (np.average(values, axis=0, weights=weights) for values in (features, labels))
    scaled = weights[:, None] * (features - centre)
    strengths, directions = np.linalg.eigh(scaled.T @ (features - centre))
    found = directions.T @ (scaled.T @ (labels - mean))
    slopes: Floats = directions @ (found / (strengths[:, None] + penalties[:, None, None]))
    return slopes, mean - centre @ slopes
