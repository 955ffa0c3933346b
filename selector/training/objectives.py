"""The losses of the two heads."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional


class PolicyLoss(NamedTuple):
    """Scalars: the loss, its two terms, and the batch mean of the throughput ratio."""

    loss: Tensor
    log_ratio: Tensor
    penalty: Tensor
    ratio: Tensor


def policy_loss(
    logits: Tensor, efficiency: Tensor, times: Tensor, base: Tensor, *, penalty: float, worst_fraction: float
) -> PolicyLoss:
    """The paper's objective for the policy `pi = softmax(logits)`.

    With `TPS = sum_a pi(a) efficiency(a) / sum_a pi(a) times(a)` and `ratio = TPS / base`:
    `mean(-log ratio) + penalty * mean over the worst fraction of max(1 - ratio, 0)^2`.

    Args:
        logits, efficiency, times: `[B, actions]`; `base [B]`, the throughput of each root's static action.
        penalty, worst_fraction: `lambda` and `alpha`; at least one root is in the worst fraction.
    """
    policy = logits.softmax(1)
    ratio = (policy * efficiency).sum(1) / (policy * times).sum(1) / base
    shortfall = (1 - ratio).clamp(min=0).square()
    worst = shortfall.topk(math.ceil(worst_fraction * len(shortfall)) or 1).values.mean()
    log_ratio = -ratio.log().mean()
    return PolicyLoss(log_ratio + penalty * worst, log_ratio, worst, ratio.mean())


def regressor_loss(predicted: Tensor, efficiency: Tensor, deviation: Tensor) -> Tensor:
    """Huber loss of errors in units of `deviation`, all `[B, actions]`: certain labels weigh more."""
    return functional.huber_loss(predicted / deviation, efficiency / deviation)
