"""Losses of a draft's logits against the target's stored top tokens.

`logits [positions, head]`; `columns`, `top_logprobs [positions, top]`: head column of each of the target's top tokens
(-1: not in the head) and its log-probability; `temperature [positions]`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS = 16  # positions whose laws are made at a time on a CPU, so that they stay in its caches
SMALLEST = 1e-4  # acceptance below which a position's gradient grows no more


def target_law(top_logprobs: Tensor, temperature: Tensor) -> Tensor:
    """The target's law at another temperature, over its top tokens: `[positions, top]`.

    Normalised over the top tokens and, at temperature 1 and above, over the mass of the tail, so it is exact at
    temperature 1.
    """
    scaled = top_logprobs / temperature[:, None]
    tail = (1 - top_logprobs.exp().sum(-1)).clamp(min=0) * (temperature >= 1)
    return scaled.exp() / (scaled.exp().sum(-1) + tail)[:, None]


def draft_logprobs(logits: Tensor, columns: Tensor, temperature: Tensor) -> Tensor:
    """The draft's log-probabilities of the target's top tokens, `-inf` outside the head: `[positions, top]`."""
    logprobs: Tensor = _TopLogprobs.apply(logits, columns.clamp(min=0), temperature)  # type: ignore[no-untyped-call]
    return logprobs.masked_fill(columns < 0, -torch.inf)


class _TopLogprobs(torch.autograd.Function):
    """`log_softmax(logits / temperature)` at a few columns, without a float32 copy of all logits.

    Laws are made again for the gradient: they take less time than the memory that would hold them.
    """

    @staticmethod
    def forward(context: Any, logits: Tensor, columns: Tensor, temperature: Tensor) -> Tensor:
        context.save_for_backward(logits, columns, temperature)
        return torch.cat(
            [_scaled(*rows).log_softmax(-1).gather(1, rows[1]) for rows in _parts(logits, columns, temperature)]
        )

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, columns, temperature = context.saved_tensors
        result = torch.empty_like(logits)
        start = 0
        for rows in _parts(logits, columns, temperature, gradients[0]):
            probs = _scaled(*rows[:3]).softmax(-1)
            gradient = probs.mul_(-rows[3].sum(-1, keepdim=True)).scatter_add_(1, rows[1], rows[3])
            result[start : start + len(probs)] = gradient.div_(rows[2][:, None])
            start += len(probs)
        return result, None, None


def _scaled(logits: Tensor, columns: Tensor, temperature: Tensor) -> Tensor:
    return logits.float() / temperature[:, None]


def _parts(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    size = ROWS if tensors[0].device.type == "cpu" else max(len(tensors[0]), 1)
    return list(zip(*(torch.split(tensor, size) for tensor in tensors), strict=True))


def cross_entropy(logits: Tensor, columns: Tensor, top_logprobs: Tensor, temperature: Tensor) -> Tensor:
    """KL fit up to a constant, over the target's top tokens that the head has; the mean over positions."""
    logprobs = draft_logprobs(logits, columns, temperature).masked_fill(columns < 0, 0.0)
    return -(target_law(top_logprobs, temperature) * logprobs).sum(-1).mean()


def acceptance(logits: Tensor, columns: Tensor, top_logprobs: Tensor, temperature: Tensor) -> Tensor:
    """`sum min(target, draft)` at each position, up to overlaps in the target's tail: `[positions]`."""
    draft = draft_logprobs(logits, columns, temperature).exp()
    return torch.minimum(target_law(top_logprobs, temperature), draft).sum(-1)


def rejection_rate(logits: Tensor, columns: Tensor, top_logprobs: Tensor, temperature: Tensor) -> Tensor:
    """`1 - acceptance`, the mean over positions: the total variation between the laws."""
    return 1 - acceptance(logits, columns, top_logprobs, temperature).mean()


def log_acceptance(logits: Tensor, columns: Tensor, top_logprobs: Tensor, temperature: Tensor) -> Tensor:
    """`-log acceptance`, the mean over positions (LK losses, arXiv 2602.23881).

    Its gradient is that of the rejection rate divided by the acceptance, so hopeless positions are not given up.
    """
    return -acceptance(logits, columns, top_logprobs, temperature).clamp(min=SMALLEST).log().mean()
