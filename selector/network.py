"""The selector's network: one body over the root's features, two heads over the actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from selector.trees.expansion import ActionSpace, Expansion

SMALLEST_INCREMENT = 1e-3
STANDARD_LIMIT = 6.0
LATENCY_SCALARS = 2
QUIET_GAIN = 0.1


@dataclass(frozen=True)
class NetworkShape:
    """Everything that fixes the parameters' shapes.

    Attributes:
        target_hidden, draft_hidden: sizes of the two models' hidden states.
        num_scalars: scalar features, without the latency scalars that the network's input appends.
        action_space: the limits `(K, L1, L2)`.
        projection: width of each projected hidden block.
        hidden_sizes: of the MLP body.
        hidden_dropout: of the standardised hidden states; `dropout` is the body's.
    """

    target_hidden: int
    draft_hidden: int
    num_scalars: int
    action_space: tuple[int, int, int]
    projection: int = 128
    hidden_sizes: tuple[int, int] = (512, 32)
    dropout: float = 0.1
    hidden_dropout: float = 0.5


class Inputs(NamedTuple):
    """A batch of roots: three hidden blocks `[B, d]` and `[B, num_scalars + 2]` scalars, latency ones last."""

    target_hidden: Tensor
    draft_hidden_prev: Tensor
    draft_hidden_root: Tensor
    scalars: Tensor


class Prediction(NamedTuple):
    """`[B, actions]` each: the policy's logits, and the expected tokens of a step."""

    policy_logits: Tensor
    efficiency: Tensor


class Standardise(nn.Module):
    """Subtract the training mean, divide by the training deviation, and clip at six deviations.

    The clip keeps one strange input (a context far longer than any in training) from deciding everything.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def fit(self, values: Tensor) -> None:
        """Take mean and deviation from `values [N, size]`; a constant column is mapped to zero."""
        deviation = values.double().std(0, correction=0).float()
        self.mean.copy_(values.double().mean(0))
        self.scale.copy_(torch.where(deviation > 1e-6 * (1 + self.mean.abs()), deviation, torch.inf))

    def forward(self, values: Tensor) -> Tensor:
        return ((values - self.mean) / self.scale).clamp(-STANDARD_LIMIT, STANDARD_LIMIT)


class IncrementHead(nn.Module):
    """Expected tokens of every action as `1 +` a sum of increments, one for each depth of its tree.

    The increment of a depth is the probability that the step gets that far, a number in [0, 1]. Chains share
    theirs, and `(K, L1, L2)` is the chain of `L1` followed by its own `L2` increments: for a top-down verifier
    this is exact, since what happens above a node does not depend on the tree below it; for the others it
    still gives the order and the bounds `1 <= E <= 1 + L1 + L2`. Actions that differ by their last level share
    all other increments, so a noisy label of one action teaches its neighbours.

    An increment is `sigmoid(base + linear(body))`; `base` comes from the training mean of the labels and
    `linear` starts at zero, so an untrained network predicts the mean of every action, the very numbers that
    the best static action is chosen by, and weight decay pulls towards them.
    """

    base: Tensor
    sums: Tensor

    def __init__(self, features: int, space: ActionSpace) -> None:
        super().__init__()
        steps, paths = increments(space)
        sums = torch.zeros(len(space), len(steps))
        for action, path in enumerate(paths):
            sums[action, path] = 1.0
        self.steps = steps
        self.linear = zero_linear(features, len(steps))
        self.register_buffer("base", torch.zeros(len(steps)))
        self.register_buffer("sums", sums, persistent=False)

    def fit(self, mean_efficiency: Tensor) -> None:
        """Set `base` from the labels' mean `[actions]`."""
        previous, action = torch.tensor(self.steps, dtype=torch.int64).reshape(-1, 2).unbind(1)
        rise = (mean_efficiency[action] - mean_efficiency[previous]).float()
        self.base.copy_(torch.logit(rise.clamp(SMALLEST_INCREMENT, 1 - SMALLEST_INCREMENT)))

    def forward(self, body: Tensor) -> Tensor:
        return 1 + torch.sigmoid(self.base + self.linear(body)) @ self.sums.T


def increments(space: ActionSpace) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """The increments of a space.

    Returns:
        steps: for each increment, (the action one level less deep, the action that it leads to).
        paths: for each action, the increments that it is the sum of.
    """
    steps: list[tuple[int, int]] = []
    paths: list[list[int]] = []
    for expansion in space.expansions:
        if expansion.max_depth == 0:
            paths.append([])
            continue
        previous = space.index(Expansion(*expansion[:2], expansion.branch_length - 1))
        paths.append([*paths[previous], len(steps)])
        steps.append((previous, len(paths) - 1))
    return steps, paths


class SelectorNetwork(nn.Module):
    """Each hidden block: standardise, linear, LayerNorm; with the scalars into an MLP; a policy and a regressor.

    Three hidden blocks have hundreds of times as many numbers as there are scalars, and a data set of a few hundred
    roots can be learned by heart from them. So they start quietly (`QUIET_GAIN`, the LayerNorms' first weight), and
    dropout of their entries works as a penalty; on synthetic roots where both matter this recovers 0.4 of the
    oracle gap from 480 training roots, and without it 0.05.

    The policy has one logit an action. Its `policy_base` orders the actions by their static throughput, and its
    linear layer starts at zero, so that untrained it picks the best static action.
    """

    policy_base: Tensor

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        space = ActionSpace(*shape.action_space)
        sizes = (shape.target_hidden, shape.draft_hidden, shape.draft_hidden)
        first, last = shape.hidden_sizes
        self.standardise = nn.ModuleList([Standardise(size) for size in sizes])
        self.standardise_scalars = Standardise(shape.num_scalars + LATENCY_SCALARS)
        self.hidden_dropout = nn.Dropout(shape.hidden_dropout)
        self.project = nn.ModuleList([quiet_projection(size, shape.projection) for size in sizes])
        width = len(sizes) * shape.projection + shape.num_scalars + LATENCY_SCALARS
        self.body = nn.Sequential(
            nn.Linear(width, first), nn.GELU(), nn.Dropout(shape.dropout),
            nn.Linear(first, last), nn.GELU(), nn.Dropout(shape.dropout),
        )  # fmt: skip
        self.policy = zero_linear(last, len(space))
        self.register_buffer("policy_base", torch.zeros(len(space)))
        self.regressor = IncrementHead(last, space)

    def fit_statistics(self, inputs: Inputs, mean_efficiency: Tensor, policy_base: Tensor) -> None:
        """Set the buffers from the training roots; `mean_efficiency` and `policy_base` are `[actions]`."""
        for standardise, block in zip(self.standardise, inputs[:-1], strict=True):
            assert isinstance(standardise, Standardise)
            standardise.fit(block)
        self.standardise_scalars.fit(inputs.scalars)
        self.regressor.fit(mean_efficiency)
        self.policy_base.copy_(policy_base)

    def forward(self, inputs: Inputs) -> Prediction:
        blocks = zip(self.standardise, self.project, inputs[:-1], strict=True)
        projected = [project(self.hidden_dropout(standardise(block))) for standardise, project, block in blocks]
        body = self.body(torch.cat([*projected, self.standardise_scalars(inputs.scalars)], 1))
        return Prediction(self.policy_base + self.policy(body), self.regressor(body))


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that starts at zero."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def quiet_projection(inputs: int, outputs: int) -> nn.Sequential:
    """Linear and LayerNorm, whose output starts at a deviation of `QUIET_GAIN` beside the scalars' 1."""
    norm = nn.LayerNorm(outputs)
    nn.init.constant_(norm.weight, QUIET_GAIN)
    return nn.Sequential(nn.Linear(inputs, outputs), norm)
