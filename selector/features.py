"""What the selector knows at a root. Data generation and decoding both call `root_features`."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    root_entropy = _entropy(draft_probs_root.float())
    if previous is None:
        target_hidden = torch.zeros(target_hidden_size)
        draft_hidden = torch.zeros_like(draft_hidden_root)
        zero = torch.zeros_like(root_entropy)
        measured = [zero, zero, root_entropy, zero, zero, zero]
    else:
        target_hidden, draft_hidden = previous.target_hidden, previous.draft_hidden
        target_entropy, draft_entropy, *distances = _compare(previous)
        measured = [target_entropy, draft_entropy, root_entropy, *distances]
    setting = torch.tensor([float(context_length), sampling.temperature, sampling.top_p])
    scalars = torch.stack([*measured, *_unwarped(draft_logits_root.float())])
    return RootFeatures(
        target_hidden=target_hidden.float().cpu(),
        draft_hidden_prev=draft_hidden.float().cpu(),
        draft_hidden_root=draft_hidden_root.float().cpu(),
        scalars=torch.cat([scalars.float().cpu(), setting]),
    )


def _compare(previous: Previous) -> list[Tensor]:
    """Entropies of target and draft, `KL(target || draft)`, `KL(draft || target)`, and the L1 distance.

    Beside the target's entropy all is read from the draft's columns: outside them its law is zero, and the target's
    counts by its mass. On a small pair a step takes 50 ms, and five readings of 49,152 columns 1% of it.
    """
    target, draft = previous.target_probs.float(), previous.draft_probs.float()
    target_entropy, draft_entropy = _entropy(target), _entropy(draft)
    outside = torch.zeros_like(target_entropy)
    if previous.support is not None:
        target = target[previous.support]
        outside = (1 - target.sum()).clamp(min=0)
    cross_entropy = -(target @ _log(draft)) - outside * math.log(FLOOR)
    return [
        target_entropy,
        draft_entropy,
        cross_entropy - target_entropy,
        -(draft @ _log(target)) - draft_entropy,
        l1_distance(target, draft) + outside,
    ]


def _unwarped(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Entropy and largest probability of `softmax(logits)`, without a logarithm of each probability."""
    shifted = (logits - logits.max()).clamp_(min=-100)  # of a token that the model forbids: -inf times 0 is no number
    weights = shifted.exp()
    total = weights.sum()
    return total.log() - (weights @ shifted) / total, 1 / total


def _entropy(law: Tensor) -> Tensor:
    return -(law @ _log(law))


def _log(law: Tensor) -> Tensor:
    """Natural logarithm, floored at 1e-10, so that disjoint supports give a large finite divergence."""
    return law.clamp(min=FLOOR).log_()


def latency_scalars(context_length: Tensor, profile: LatencyProfile) -> Tensor:
    """`[roots, 2]`, float32: log10 seconds of a draft and of a target pass of width 1 at `context_length [roots]`.

    They are appended to the scalars at the network's input and never stored: a data set holds no time.
    """
    times = torch.stack([profile.draft_time(context_length, 1), profile.target_time(context_length, 1)], 1)
    return times.clamp(min=1e-9).log10().float()
