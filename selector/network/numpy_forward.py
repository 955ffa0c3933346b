"""Forward pass of a linear selector at one root, in numpy.

Torch takes longer to start its thirty small operations than to do them.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from selector.features import FLOAT16_MAX, HIDDEN, MATCH, SCALARS
from selector.latency import LatencyProfile, latency_scalars
from selector.network.network import (
    SHARPNESS,
    Available,
    Components,
    SelectorNetwork,
    clipped,
    curves,
    standardised,
)

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
        parts = [block.standardise for block in blocks]
        self._states = [np.concatenate([getattr(part, name).numpy() for part in parts]) for name in ("mean", "scale")]
        self._scalars = [getattr(network.encoder.scalars, name).numpy() for name in ("mean", "scale")]
        self._weight, self._bias = network.linear_weight[:, columns].numpy(), network.linear_bias.numpy()
        self._available = Available(network.always.numpy(), network.matched.numpy(), network.parts.numpy())
        self._match = SCALARS.index(MATCH) if network.shape.num_scalars == len(SCALARS) else None
        self._prices, self._longest = network.prices.numpy(), network.longest.numpy()
        # flat past the longest context of the profile
        self._latency = latency_scalars(torch.arange(profile.contexts[-1] + 1), profile).numpy()

    def policy_logits(self, states: Floats, scalars: Floats) -> Floats:
        """`[actions]`, of the states that are read (`hidden`), one behind the other, and `scalars [S]`."""
        logits: Floats = SHARPNESS * (self._linear(states, scalars) - self._prices)
        return self._here(logits, scalars)

    def efficiency(self, states: Floats, scalars: Floats) -> Floats:
        """`[actions]`: predicted tokens of a step, from the same arguments as `policy_logits`."""
        efficiency: Floats = np.minimum(np.maximum(self._linear(states, scalars), 1), self._longest)
        return self._here(efficiency, scalars)

    def _here(self, values: Floats, scalars: Floats) -> Floats:
        """See `Available`."""
        return self._available.of(values, scalars[self._match], np) if self._match is not None else values

    def _linear(self, states: Floats, scalars: Floats) -> Floats:
        latency = self._latency[min(int(scalars[CONTEXT]), len(self._latency) - 1)]
        inputs = curves(np.concatenate([scalars, latency]), np)
        states = standardised(as_stored(states), *self._states)
        parts = [directions @ states[part] for directions, part in zip(self._directions, self._parts, strict=True)]
        encoded = np.concatenate([clipped(np.concatenate(parts)), standardised(inputs, *self._scalars)])
        linear: Floats = self._bias + self._weight @ encoded
        return linear


def as_stored(states: Floats) -> Floats:
    """`states` rounded to float16, as a data set stores them."""
    return states.clip(-FLOAT16_MAX, FLOAT16_MAX).astype(np.float16).astype(np.float32)
