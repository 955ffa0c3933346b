"""The selector's network: a linear model of the root's features, and an MLP that corrects it, for two heads."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Num
from pydantic import Field
from torch import Tensor, nn

from selector.artifacts.loading import Size
from selector.config import Limits
from selector.features import DRAFTED_SCALARS, HIDDEN, MATCH, SCALARS
from selector.trees.expansion import ActionSpace

STANDARD_LIMIT = 5.0
LATENCY_SCALARS = 2
SETTING_SCALARS = 3
BLOCKS = (*HIDDEN, "uncertainty_prev", "uncertainty_root", "setting", "copy", "latency")
INPUTS = {"all": BLOCKS, "root": ("draft_hidden_root", "uncertainty_root", "setting", "copy", "latency")}
SMALLEST_COMPONENT = 1e-3
SHARPNESS = 20.0
Array = TypeVar("Array", bound=Any)  # a tensor or a numpy array


@dataclass(frozen=True)
class NetworkShape:
    """Everything that fixes the parameters' shapes.

    Attributes:
        target_hidden, draft_hidden: sizes of the two models' hidden states.
        num_scalars: scalar features, without the latency scalars that the network's input appends.
        action_space: what `ActionSpace` takes, `(K, L1, L2)` and the copies.
        components: principal components of each hidden state.
        hidden_sizes: of the MLP body.
        dropout: in the body.
        inputs: `all` blocks of features, or those of the `root`, which cost half as much at decoding.
        mixed: whether the verifier takes trees that are drafted beside a copied chain.
    """

    target_hidden: Size
    draft_hidden: Size
    num_scalars: Size
    action_space: Limits
    components: Size = 16
    hidden_sizes: tuple[Size, Size] = (512, 32)
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    inputs: Literal["all", "root"] = "all"
    mixed: bool = True

    @property
    def blocks(self) -> tuple[str, ...]:
        """The blocks that the network reads."""
        return INPUTS[self.inputs]

    @property
    def width(self) -> int:
        """Inputs of linear model and body."""
        return 3 * self.components + 3 * (self.num_scalars + LATENCY_SCALARS)


class Inputs(NamedTuple):
    """A batch of roots: three hidden blocks `[B, d]` and `[B, num_scalars + 2]` scalars, latency ones last."""

    target_hidden: Float[Tensor, "roots d_target"]
    draft_hidden_prev: Float[Tensor, "roots d_draft"]
    draft_hidden_root: Float[Tensor, "roots d_draft"]
    scalars: Float[Tensor, "roots scalars"]


class Prediction(NamedTuple):
    """The policy's logits and the expected tokens of a step, `[B, actions]`; what prices are made of, `[actions]`.

    `mean_efficiency` is the training mean times what choosing gains over the best static action: time is worth what
    the selector itself makes of it.
    """

    policy_logits: Float[Tensor, "roots actions"]
    efficiency: Float[Tensor, "roots actions"]
    mean_efficiency: Float[Tensor, " actions"]


def clipped(values: Array) -> Array:
    """`values` within five deviations, so that one strange input (a very long context) does not decide everything."""
    within: Array = values.clip(-STANDARD_LIMIT, STANDARD_LIMIT)
    return within


def standardised(values: Array, mean: Array, scale: Array) -> Array:
    """`values [..., S]` in deviations `scale [S]` from the `mean [S]` of training, clipped."""
    deviations: Array = (values - mean) / scale
    return clipped(deviations)


@dataclass(frozen=True)
class Available:
    """Which actions a root has: a copy needs an earlier match, and a mixed tree a verifier that takes it.

    What is not to be had is predicted as its drafted part, which decoding would take in its place.

    Attributes:
        always, matched: of each action, whether a root without a match has it, and one with a match, `[actions]`.
        parts: the drafted part of each action, `[actions]`.
    """

    always: Any
    matched: Any
    parts: Any

    def of(self, values: Array, match: Array, numerics: ModuleType = torch) -> Array:
        """`values [..., actions]` of what roots have; `match [..., 1]` is above 0 where there is an earlier match."""
        found: Array = numerics.where(self.always | ((match > 0) & self.matched), values, values[..., self.parts])
        return found


def available(shape: NetworkShape) -> Available:
    """The actions of a network's space."""
    space = ActionSpace(*shape.action_space)
    drafted = [True] * len(space.drafted)
    always = torch.tensor(drafted + [False] * len(space.copies))
    matched = torch.tensor(drafted + [shape.mixed or not copy.beside for copy in space.copies])
    return Available(always, matched, torch.tensor(space.drafted_parts))


class Standardise(nn.Module):
    """Subtract the training mean, divide by the training deviation, and clip at five deviations."""

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def fit(self, values: Float[Tensor, "roots size"]) -> None:
        """Take mean and deviation from `values [N, size]`; a constant column is mapped to zero."""
        deviation = values.double().std(0, correction=0).float()
        self.mean.copy_(values.double().mean(0))
        self.scale.copy_(torch.where(deviation > 1e-6 * (1 + self.mean.abs()), deviation, torch.inf))

    def forward(self, values: Float[Tensor, "roots size"]) -> Float[Tensor, "roots size"]:
        return standardised(values, self.mean, self.scale)


class Components(nn.Module):
    """Leading principal components of one hidden state, each of deviation 1; `[B, count]`."""

    directions: Tensor

    def __init__(self, size: int, count: int) -> None:
        super().__init__()
        self.standardise = Standardise(size)
        self.register_buffer("directions", torch.zeros(count, size))

    def fit(self, values: Float[Tensor, "roots size"]) -> None:
        """Set the buffers from `values [N, size]`; components that the data do not have stay zero."""
        self.standardise.fit(values)
        standardised = self.standardise(values)
        count = min(len(self.directions), *values.shape)
        _, lengths, directions = torch.pca_lowrank(standardised, count, niter=4)
        deviations = lengths / len(values) ** 0.5
        scales = torch.where(deviations > SMALLEST_COMPONENT, 1 / deviations, 0.0)
        self.directions.zero_()
        self.directions[:count] = scales[:, None] * directions.T

    def forward(self, values: Float[Tensor, "roots size"]) -> Float[Tensor, "roots components"]:
        components: Tensor = clipped(self.standardise(values) @ self.directions.T)
        return components


class RootEncoder(nn.Module):
    """Features of equal deviation, `[B, width]`: components of the hidden states, and curves of the scalars.

    Entropies and divergences matter most where they are small, so each scalar comes with its root and with
    `exp(-x)`. The hidden states have a hundred times as many numbers as a few thousand roots can give weights to;
    their leading principal components hold most of what a linear model finds in them. What the network does not read
    is zero.
    """

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        sizes = (shape.target_hidden, shape.draft_hidden, shape.draft_hidden)
        self.hidden = nn.ModuleList([Components(size, shape.components) for size in sizes])
        self.scalars = Standardise(3 * (shape.num_scalars + LATENCY_SCALARS))
        self._blocks = shape.blocks

    def fit(self, inputs: Inputs) -> None:
        """Set the buffers from the training roots."""
        for name, components, block in zip(HIDDEN, self.hidden, inputs[:-1], strict=True):
            assert isinstance(components, Components)
            if name in self._blocks:
                components.fit(block)
        self.scalars.fit(curves(inputs.scalars))
        scale = self.scalars.scale.view(3, -1)
        for name, columns in scalar_blocks(scale.shape[1]).items():
            if name not in self._blocks:
                scale[:, columns] = torch.inf

    def forward(self, inputs: Inputs) -> Float[Tensor, "roots width"]:
        hidden = [components(block) for components, block in zip(self.hidden, inputs[:-1], strict=True)]
        return torch.cat([*hidden, self.scalars(curves(inputs.scalars))], 1)


def scalar_blocks(count: int) -> dict[str, list[int]]:
    """Columns of each kind of scalars among `count`, in the order of `features.SCALARS`; the latency ones are last.

    Fewer than the drafted ones are told apart from both ends: the last three of them are the setting.
    """
    known = count - LATENCY_SCALARS
    setting = max(min(known, len(DRAFTED_SCALARS)) - SETTING_SCALARS, 0)
    blocks: dict[str, list[int]] = {name: [] for name in BLOCKS[len(HIDDEN) :]}
    for column, name in enumerate(SCALARS[:setting]):
        blocks["uncertainty_root" if name.endswith("_root") else "uncertainty_prev"].append(column)
    blocks["setting"] = [*range(setting, min(known, setting + SETTING_SCALARS))]
    blocks["copy"] = [*range(len(DRAFTED_SCALARS), known)]
    blocks["latency"] = [*range(known, count)]
    return blocks


def curves(scalars: Array, numerics: ModuleType = torch) -> Array:
    """`x`, `sqrt(x)` and `exp(-x)` of scalars `[..., S]`, the last two at 0 where `x` is below it; `[..., 3 S]`.

    `numerics` is torch or numpy, whichever the scalars are of.
    """
    positive = scalars.clip(0)
    found: Array = numerics.concatenate([scalars, numerics.sqrt(positive), numerics.exp(-positive)], -1)
    return found


class SelectorNetwork(nn.Module):
    """A linear model of `E[tau + 1]` for each action, fitted in closed form, and an MLP that corrects it.

    With some thousand roots whose labels are mostly noise, a ridge regression is the better part of what can be
    learned; an MLP from random weights finds less of it. So the linear model is fitted first (`set_linear`) and kept,
    and the body's two output layers start at zero: untrained, both heads decide as the linear model does.

    The policy has one logit an action, at first what a step of the linear model yields beyond what its time is worth
    (`prices`, in tokens) on the machine of training.
    """

    linear_weight: Tensor
    linear_bias: Tensor
    mean_efficiency: Tensor
    prices: Tensor
    gain: Tensor
    longest: Tensor
    always: Tensor
    matched: Tensor
    parts: Tensor

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        space = ActionSpace(*shape.action_space)
        first, last = shape.hidden_sizes
        self.encoder = RootEncoder(shape)
        self.body = nn.Sequential(
            nn.Linear(shape.width, first), nn.GELU(), nn.Dropout(shape.dropout),
            nn.Linear(first, last), nn.GELU(), nn.Dropout(shape.dropout),
        )  # fmt: skip
        self.policy = zero_linear(last, len(space))
        self.regressor = zero_linear(last, len(space))
        longest = torch.tensor([1.0 + expansion.max_depth for expansion in space.expansions])
        self.register_buffer("linear_weight", torch.zeros(len(space), shape.width))
        self.register_buffer("linear_bias", torch.ones(len(space)))
        self.register_buffer("mean_efficiency", torch.ones(len(space)))
        self.register_buffer("prices", torch.zeros(len(space)))
        self.register_buffer("gain", torch.ones(()))
        self.register_buffer("longest", longest, persistent=False)
        for name, values in vars(available(shape)).items():
            self.register_buffer(name, values, persistent=False)

    def set_linear(self, weight: Num[Tensor, "actions width"], bias: Num[Tensor, " actions"]) -> None:
        """Copy weights and constants of the linear model."""
        self.linear_weight.copy_(weight)
        self.linear_bias.copy_(bias)

    def forward(self, inputs: Inputs) -> Prediction:
        encoded = self.encoder(inputs)
        body = self.body(encoded)
        linear = self.linear_bias + encoded @ self.linear_weight.T
        efficiency = (linear + self.regressor(body)).clamp(min=1).minimum(self.longest)
        logits = SHARPNESS * (linear - self.prices) + self.policy(body)
        here, match = Available(self.always, self.matched, self.parts), matches(inputs.scalars)
        return Prediction(here.of(logits, match), here.of(efficiency, match), self.gain * self.mean_efficiency)


def matches(scalars: Array) -> Array:
    """Match lengths `[..., 1]` among the network's scalars `[..., S]`; zeros where it reads none."""
    column = SCALARS.index(MATCH)
    found: Array = scalars[..., column : column + 1] if scalars.shape[-1] > len(SCALARS) else 0 * scalars[..., :1]
    return found


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that starts at zero."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
