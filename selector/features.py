"""What the selector knows at a root. Data generation and decoding both call `root_features`."""

from __future__ import annotations

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
        scalars: `[len(SCALARS)]`, entropies and divergences in nats.
    """

    target_hidden: Tensor
    draft_hidden_prev: Tensor
    draft_hidden_root: Tensor
    scalars: Tensor


@dataclass
class Previous:
    """Both models at the token before the root token: warped laws `[vocab]` and last hidden states."""

    target_probs: Tensor
    draft_probs: Tensor
    target_hidden: Tensor
    draft_hidden: Tensor


def root_features(
    previous: Previous | None,
    *,
    draft_probs_root: Tensor,
    draft_hidden_root: Tensor,
    target_hidden_size: int,
    context_length: int,
    sampling: Sampling,
) -> RootFeatures:
    """Features of a root from the warped laws and hidden states.

    `previous` is None for a one-token context, whose features of prev are zeros. `context_length` counts the
    tokens before the root token; `draft_probs_root` may leave out columns that are zero.
    """
    root = draft_probs_root.float()
    root_entropy = -(root @ _log(root))
    if previous is None:
        target_hidden = torch.zeros(target_hidden_size)
        draft_hidden = torch.zeros_like(draft_hidden_root)
        zero = torch.zeros_like(root_entropy)
        measured = [zero, zero, root_entropy, zero, zero, zero]
    else:
        target, draft = previous.target_probs.float(), previous.draft_probs.float()
        target_hidden, draft_hidden = previous.target_hidden, previous.draft_hidden
        log_target, log_draft = _log(target), _log(draft)
        target_entropy, draft_entropy = -(target @ log_target), -(draft @ log_draft)
        measured = [
            target_entropy,
            draft_entropy,
            root_entropy,
            -(target @ log_draft) - target_entropy,
            -(draft @ log_target) - draft_entropy,
            l1_distance(target, draft),
        ]
    setting = torch.tensor([float(context_length), sampling.temperature, sampling.top_p])
    return RootFeatures(
        target_hidden=target_hidden.float().cpu(),
        draft_hidden_prev=draft_hidden.float().cpu(),
        draft_hidden_root=draft_hidden_root.float().cpu(),
        scalars=torch.cat([torch.stack(measured).float().cpu(), setting]),
    )


def _log(law: Tensor) -> Tensor:
    """Natural logarithm, floored at 1e-10, so that disjoint supports give a large finite divergence.

    Entropies and divergences of two laws need one each: at a vocabulary of 49,152 all scalars take 0.2 ms this way,
    and 0.8 ms with `entropy` and `kl_divergence` one by one. A step on a small pair takes 50 ms.
    """
    return law.clamp(min=FLOOR).log()


def latency_scalars(context_length: Tensor, profile: LatencyProfile) -> Tensor:
    """`[roots, 2]`, float32: log10 seconds of a draft and of a target pass of width 1 at `context_length [roots]`.

    They are appended to the scalars at the network's input and never stored: a data set holds no time.
    """
    times = torch.stack([profile.draft_time(context_length, 1), profile.target_time(context_length, 1)], 1)
    return times.clamp(min=1e-9).log10().float()
