"""A linear selector at one root, in numpy: torch takes longer to start its thirty small operations than to do them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selector.features import latency_scalars
from selector.latency import LatencyProfile
from selector.network import SHARPNESS, STANDARD_LIMIT, Prediction, SelectorNetwork, Standardise

Floats = NDArray[np.float32]


def is_linear(network: SelectorNetwork) -> bool:
    """Whether the MLP adds nothing to the linear model, as where training did not keep it."""
    heads = (*network.policy.parameters(), *network.regressor.parameters())
    return not any(bool(parameter.any()) for parameter in heads)


class SingleRoot:
    """What `network`, which `is_linear`, predicts at one root; `profile` is that of its training."""

    def __init__(self, network: SelectorNetwork, profile: LatencyProfile) -> None:
        encoder = network.encoder
        self._hidden = [(_Standard(block.standardise), block.directions.numpy()) for block in encoder.hidden]  # type: ignore[arg-type, operator]
        self._scalars = _Standard(encoder.scalars)
        self._weight, self._bias = network.linear_weight.numpy(), network.linear_bias.numpy()
        self._prices, self._longest = network.prices.numpy(), network.longest.numpy()
        self._mean_efficiency = network.mean_efficiency
        # flat past the longest context of the profile
        self._latency = latency_scalars(torch.arange(profile.contexts[-1] + 1), profile).numpy()

    def predict(self, hidden: Mapping[str, Tensor], scalars: Tensor, context_length: int) -> Prediction:
        """As `SelectorCheckpoint.predict` at one root: hidden blocks `[d]`, `scalars [S]`; results `[1, actions]`."""
        latency = self._latency[min(context_length, len(self._latency) - 1)]
        inputs = np.concatenate([scalars.numpy(), latency])
        positive = np.maximum(inputs, 0)
        curves = np.concatenate([inputs, np.sqrt(positive), np.exp(-positive)])
        parts = [
            _clipped(directions @ standard(hidden[name].numpy()))
            for (standard, directions), name in zip(self._hidden, hidden, strict=True)
        ]
        linear = self._bias + self._weight @ np.concatenate([*parts, self._scalars(curves)])
        logits = SHARPNESS * (linear - self._prices)
        efficiency = np.minimum(np.maximum(linear, 1), self._longest)
        return Prediction(torch.from_numpy(logits)[None], torch.from_numpy(efficiency)[None], self._mean_efficiency)


class _Standard:
    def __init__(self, module: Standardise) -> None:
        self._mean, self._scale = module.mean.numpy(), module.scale.numpy()

    def __call__(self, values: Floats) -> Floats:
        return _clipped((values - self._mean) / self._scale)


def _clipped(values: Floats) -> Floats:
    return np.minimum(np.maximum(values, -STANDARD_LIMIT), STANDARD_LIMIT)
