"""Next-token distributions: logits to probabilities, and drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from selector.config import DecodeConfig, check_sampling
from selector.errors import UserError

NUCLEUS_CANDIDATES = (64, 1024, 8192)
TEMPERATURES = 1e-37, 1e37
"""float32 holds these and their reciprocals; the distributions beyond are the same up to rounding."""


@dataclass(frozen=True)
class Sampling:
    """How logits are warped: temperature, then top-k, then top-p, the order of transformers' `generate`.

    Args:
        temperature: divides the logits; 0 is greedy decoding: the distribution is one-hot at the argmax.
        top_p: the smallest set of most probable tokens that holds this probability is kept; 1 keeps all.
        top_k: so many most probable tokens are kept; 0 keeps all.

    Returns:
        An immutable setting; it draws nothing by itself.

    Raises:
        UserError: a value that no distribution can be warped with.

    Example:
        >>> ddte.Sampling(temperature=0.6, top_p=0.9)
        Sampling(temperature=0.6, top_p=0.9, top_k=0)
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        check_sampling(self.temperature, self.top_p, self.top_k)

    @classmethod
    def of(cls, settings: DecodeConfig) -> Sampling:
        """That of decoding settings."""
        return cls(settings.temperature, settings.top_p, settings.top_k)


def warp(logits: Float[Tensor, "*rows vocab"], sampling: Sampling) -> Float[Tensor, "*rows vocab"]:
    """Distribution of the next token, float32 (float64 stays); rows sum to 1."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.temperature == 0:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    if 0 < sampling.top_k < logits.shape[-1]:  # the temperature keeps the order, so this may come before it
        smallest = logits.topk(sampling.top_k).values[..., -1:]
        logits = logits.masked_fill(logits < smallest, float("-inf"))
    low, high = TEMPERATURES
    logits = (logits - logits.amax(-1, keepdim=True)).div_(min(max(sampling.temperature, low), high))
    if sampling.top_p < 1:
        logits = logits.masked_fill(_outside_nucleus(logits, sampling.top_p), float("-inf"))
    return torch.softmax(logits, -1)


def undefined(probs: Float[Tensor, "rows vocab"]) -> list[int]:
    """Rows of `probs`, as `warp` makes them, that are no distribution.

    Their logits held NaN, infinity, or nothing but minus infinity. Softmax spreads that over the whole row, so the
    first column tells. Greedy rows always are a distribution: the largest of such logits is NaN, as for transformers.
    """
    rows: list[int] = probs[:, 0].isnan().nonzero()[:, 0].tolist()
    return rows


def refuse_undefined(probs: Float[Tensor, "rows vocab"], model: str) -> None:
    """A UserError if a row of the `model`'s `probs` is no distribution."""
    if undefined(probs):
        raise UserError(
            f"{model} gives no distribution for the next token (its logits hold NaN or infinity): "
            "load it in a wider dtype, such as float32, or take other weights."
        )


def _outside_nucleus(logits: Float[Tensor, "*rows vocab"], top_p: float) -> Bool[Tensor, "*rows vocab"]:
    """True for the tokens that transformers' TopPLogitsWarper removes: those above them hold `top_p` already.

    On a CPU sorting a vocabulary costs many times a softmax, so more and more of the top tokens are looked at
    until the nucleus lies within them.
    """
    rows = logits.reshape(-1, logits.shape[-1])
    log_norm = rows.logsumexp(-1, keepdim=True)
    removed = torch.ones_like(rows, dtype=torch.bool)
    left = torch.arange(len(rows), device=rows.device)
    for count in (*NUCLEUS_CANDIDATES, rows.shape[1]) if rows.device.type == "cpu" else (rows.shape[1],):
        if count > rows.shape[1] or not len(left):
            continue
        top, order = rows[left].topk(count)
        probs = (top - log_norm[left]).exp().double()
        outside = probs.cumsum(-1) - probs >= top_p
        done = outside[:, -1] if count < rows.shape[1] else torch.ones_like(left, dtype=torch.bool)
        removed[left[done]] = removed[left[done]].scatter_(-1, order[done], outside[done])
        left = left[~done]
    return removed.view_as(logits)


def draw(
    probs: Float[Tensor, "distributions vocab"],
    generator: torch.Generator | None = None,
    rows: Int[Tensor, " draws"] | None = None,
) -> Int[Tensor, " draws"]:
    """One token from each distribution, or with `rows` the i-th token from distribution `rows[i]`. See `quantile`."""
    count = len(probs) if rows is None else len(rows)
    uniform = torch.rand(count, 1, dtype=torch.float64, generator=generator, device=probs.device)
    return quantile(probs, uniform[:, 0], rows)


def quantile(
    probs: Float[Tensor, "distributions vocab"],
    uniform: Float[Tensor, " draws"],
    rows: Int[Tensor, " draws"] | None = None,
) -> Int[Tensor, " draws"]:
    """Inverse CDFs at `uniform`, with float64 prefix sums.

    Draw `i` is from distribution `i`, or from distribution `rows[i]`. A token of probability zero is never drawn, also
    when the uniform number is 0 or the row sums to 1 - 1e-7.
    """
    cumulative = probs.double().cumsum(-1)
    last = probs.shape[-1] - 1 - (probs.flip(-1) > 0).to(torch.uint8).argmax(-1)
    points = uniform[:, None]
    cells: tuple[Any, Any] = (slice(None), 0)
    if rows is not None:  # all draws of a distribution stand in its row of `points`: prefix sums are never copied
        order = rows.argsort(stable=True)
        counts = torch.bincount(rows, minlength=len(probs))
        place = torch.empty_like(rows)
        place[order] = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows[order]]
        points, cells = uniform.new_zeros(len(probs), int(counts.max())), (rows, place)
        points[cells] = uniform
    index = torch.searchsorted(cumulative, points * cumulative[:, -1:], right=True)
    return torch.minimum(index, last[:, None])[cells]
