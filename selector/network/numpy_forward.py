"""A linear selector at one root, in numpy: torch takes longer to start its thirty small operations than to do them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from selector.features import FLOAT16_MAX, HIDDEN, SCALARS, latency_scalars
from selector.latency import LatencyProfile
from selector.network.network import SHARPNESS, STANDARD_LIMIT, Components, SelectorNetwork, Standardise

Floats = NDArray[np.float32]
CONTEXT = SCALARS.index("context_length")


def is_linear(network: SelectorNetwork) -> bool:
    """Whether the MLP adds nothing to the linear model, as where training did not keep it."""
    heads = (*network.policy.parameters(), *network.regressor.parameters())
    return not any(bool(parameter.any()) for parameter in heads)


class SingleRoot:
    """What `network`, which `is_linear`, predicts at one root; `profile` is that of its training."""

    def __init__(self, network: SelectorNetwork, profile: LatencyProfile) -> None:
        self.hidden = [name for name in HIDDEN if name in network.shape.blocks]
        places = [HIDDEN.index(name) for name in self.hidden]
        blocks = [block for place in places if isinstance(block := network.encoder.hidden[place], Components)]
        count, width = network.shape.components, network.shape.width
        columns = [*(place * count + number for place in places for number in range(count)), *range(3 * count, width)]
        ends = np.cumsum([block.directions.shape[1] for block in blocks])
        self._parts = [slice(end - block.directions.shape[1], end) for end, block in zip(ends, blocks, strict=True)]
        self._directions = [block.directions.numpy() for block in blocks]
        self._states = _Standard([block.standardise for block in blocks])
        self._scalars = _Standard([network.encoder.scalars])
        self._weight, self._bias = network.linear_weight[:, columns].numpy(), network.linear_bias.numpy()
        self._prices, self._longest = network.prices.numpy(), network.longest.numpy()
        # flat past the longest context of the profile
        self._latency = latency_scalars(torch.arange(profile.contexts[-1] + 1), profile).numpy()

    def policy_logits(self, states: Floats, scalars: Floats) -> Floats:
        """`[actions]`, of the states that are read (`hidden`), one behind the other, and `scalars [S]`."""
        logits: Floats = SHARPNESS * (self._linear(states, scalars) - self._prices)
        return logits

    def efficiency(self, states: Floats, scalars: Floats) -> Floats:
        """`[actions]`, likewise."""
        clipped: Floats = np.minimum(np.maximum(self._linear(states, scalars), 1), self._longest)
        return clipped

    def _linear(self, states: Floats, scalars: Floats) -> Floats:
        latency = self._latency[min(int(scalars[CONTEXT]), len(self._latency) - 1)]
        inputs = np.concatenate([scalars, latency])
        positive = np.maximum(inputs, 0)
        curves = np.concatenate([inputs, np.sqrt(positive), np.exp(-positive)])
        states = self._states(as_stored(states))
        parts = [directions @ states[part] for directions, part in zip(self._directions, self._parts, strict=True)]
        encoded = np.concatenate([_clipped(np.concatenate(parts)), self._scalars(curves)])
        linear: Floats = self._bias + self._weight @ encoded
        return linear


def as_stored(states: Floats) -> Floats:
    """`states` rounded to float16, as a data set stores them."""
    return np.minimum(np.maximum(states, -FLOAT16_MAX), FLOAT16_MAX).astype(np.float16).astype(np.float32)


class _Standard:
    def __init__(self, modules: Sequence[Standardise]) -> None:
        self._mean = np.concatenate([module.mean.numpy() for module in modules])
        self._scale = np.concatenate([module.scale.numpy() for module in modules])

    def __call__(self, values: Floats) -> Floats:
        return _clipped((values - self._mean) / self._scale)


def _clipped(values: Floats) -> Floats:
    return np.minimum(np.maximum(values, -STANDARD_LIMIT), STANDARD_LIMIT)
