"""What the selector knows at a root. Data generation and decoding both call `root_features`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from selector.distributions import Sampling, l1_distance
from selector.latency import LatencyProfile

FLOOR = 1e-10
HIDDEN = ("target_hidden", "draft_hidden_prev", "draft_hidden_root")
SCALARS: tuple[str, ...] = (
    "target_entropy_prev",
    "draft_entropy_prev",
    "draft_entropy_root",
    "kl_target_draft",
    "kl_draft_target",
    "l1_prev",
    "draft_unwarped_entropy_root",
    "draft_confidence_root",
    "context_length",
    "temperature",
    "top_p",
)


@dataclass
class RootFeatures:
    """Features of one root, float32 on the CPU: `prev` is the token before the root token.

    Attributes:
        target_hidden: `[d_target]`, the target's last hidden state at prev.
        draft_hidden_prev, draft_hidden_root: `[d_draft]`, the draft's at prev and at the root token.
        scalars: `[len(SCALARS)]`, entropies and divergences in nats. `draft_confidence_root` is the draft's largest
            probability at temperature 1; it and the entropy there still tell roots apart where a low temperature
            leaves every warped law with one token.
    """

    target_hidden: Tensor
    draft_hidden_prev: Tensor
    draft_hidden_root: Tensor
    scalars: Tensor


@dataclass
class Previous:
    """Both models at the token before the root token: warped laws and last hidden states.

    The target's law is `[vocab]`; the draft's is over its own tokens `support [columns]`, all of them if None.
    """

    target_probs: Tensor
    draft_probs: Tensor
    support: Tensor | None
    target_hidden: Tensor
    draft_hidden: Tensor


def root_features(
    previous: Previous | None,
    *,
    draft_probs_root: Tensor,
    draft_logits_root: Tensor,
    draft_hidden_root: Tensor,
    target_hidden_size: int,
    context_length: int,
    sampling: Sampling,
) -> RootFeatures:
    """Features of a root from laws and hidden states.

    `previous` is None for a one-token context, whose features of prev are zeros. `context_length` counts the
    tokens before the root token; the draft's warped law and its logits at the root are over its own columns.
    """
    laws = [draft_probs_root.float(), draft_logits_root.float().softmax(0)]
    if previous is None:
        target_hidden, draft_hidden = torch.zeros(target_hidden_size), torch.zeros_like(draft_hidden_root)
        products, distances = _log_products(laws), [0.0, 0.0, 0.0]
        target_entropy = draft_entropy = 0.0
    else:
        target_hidden, draft_hidden = previous.target_hidden, previous.draft_hidden
        target, draft, outside = _on_common_columns(previous)
        products = _log_products([*laws, target, draft])
        draft_entropy = -products[3][3]
        target_entropy = -products[2][2] if previous.support is None else _entropy(previous.target_probs.float())
        distances = [
            -products[2][3] - outside * math.log(FLOOR) - target_entropy,
            -products[3][2] - draft_entropy,
            float(l1_distance(target, draft)) + outside,
        ]
    setting = float(context_length), sampling.temperature, sampling.top_p
    measured = [target_entropy, draft_entropy, -products[0][0], *distances, -products[1][1], float(laws[1].max())]
    return RootFeatures(
        target_hidden=target_hidden.float().cpu(),
        draft_hidden_prev=draft_hidden.float().cpu(),
        draft_hidden_root=draft_hidden_root.float().cpu(),
        scalars=torch.from_numpy(np.array([*measured, *setting], np.float32)),
    )


def _on_common_columns(previous: Previous) -> tuple[Tensor, Tensor, float]:
    """Both laws over the draft's columns, and the target's mass outside them, where the draft's law is zero."""
    target, draft = previous.target_probs.float(), previous.draft_probs.float()
    if previous.support is None:
        return target, draft, 0.0
    target = target[previous.support]
    return target, draft, max(0.0, 1 - float(target.sum()))


def _log_products(laws: Sequence[Tensor]) -> list[list[float]]:
    """`sum p_i log p_j` for all pairs of `laws [columns]`: entropies and cross entropies at once.

    After a target pass the caches are cold, and what operations cost is their number: one product of two matrices
    instead of one operation a figure makes all scalars take 0.4 ms instead of 0.8, 0.5% of a step on a small pair.
    """
    rows = torch.stack(list(laws))
    products: list[list[float]] = (rows @ _log(rows).T).tolist()
    return products


def _entropy(law: Tensor) -> float:
    return -float(law @ _log(law))


def _log(law: Tensor) -> Tensor:
    """Natural logarithm, floored at 1e-10, so that disjoint supports give a large finite divergence."""
    return law.clamp(min=FLOOR).log_()


def latency_scalars(context_length: Tensor, profile: LatencyProfile) -> Tensor:
    """`[roots, 2]`, float32: log10 seconds of a draft and of a target pass of width 1 at `context_length [roots]`.

    They are appended to the scalars at the network's input and never stored: a data set holds no time.
    """
    times = torch.stack([profile.draft_time(context_length, 1), profile.target_time(context_length, 1)], 1)
    return times.clamp(min=1e-9).log10().float()
