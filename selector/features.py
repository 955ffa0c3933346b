"""Features of a root, what the selector knows there. Data generation and decoding both call `DraftRoot.features`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from selector.distributions import Sampling

Array = Tensor | NDArray[np.float32]
FLOOR = 1e-10
FLOAT16_MAX = float(np.finfo(np.float16).max)  # data sets store hidden states as float16
LOWEST = -100.0  # of a logit below the largest: a forbidden token has -inf, and that times 0 is no number
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
    "copy_match_length",
    "copy_places",
    "copy_agreement",
    "copy_recent",
    "copy_distance",
    "copy_in_prompt",
    "copy_draft_probability",
)
MATCH = "copy_match_length"
DRAFTED_SCALARS = SCALARS[: SCALARS.index(MATCH)]  # all that data sets and selectors of earlier versions know


class Match(NamedTuple):
    """The last tokens of a text, found earlier in it.

    Attributes:
        length: how many tokens are equal, 1 or more.
        start: index of the token after the latest earlier place, from which a copy is made.
        token: the token there, the first of a copy.
        distance: how many tokens ago that was: a copy of more tokens repeats itself with this period.
        places: earlier places of these tokens.
        agreeing: those of them that `token` follows, 1 or more.
        in_prompt: whether the token at `start` lies in the prompt.
        recent: share of the latest tokens that a copy would have got right, later ones weighing more.
    """

    length: int
    start: int
    token: int
    distance: int
    places: int
    agreeing: int
    in_prompt: bool
    recent: float


@dataclass
class RootFeatures:
    """Features of one root, float32 on the CPU: `prev` is the token before the root token.

    Attributes:
        target_hidden: `[d_target]`, the target's last hidden state at prev.
        draft_hidden_prev, draft_hidden_root: `[d_draft]`, the draft's at prev and at the root token.
        scalars: `[len(SCALARS)]`, entropies and divergences in nats. `draft_confidence_root` is the draft's largest
            probability at temperature 1; it and the entropy there still tell roots apart where a low temperature
            leaves every warped distribution with one token. The last seven tell what could be copied (see
            `copy_scalars`).
    """

    target_hidden: Float[Tensor, " d_target"]
    draft_hidden_prev: Float[Tensor, " d_draft"]
    draft_hidden_root: Float[Tensor, " d_draft"]
    scalars: Float[Tensor, " scalars"]


class TargetProbs(NamedTuple):
    """What features need of the target's warped distribution at prev.

    Attributes:
        entropy: in nats, over the vocabulary.
        probs: `[columns]`, over the draft's own tokens.
        outside: probability of all other tokens, where the draft's is zero.
    """

    entropy: float
    probs: Array
    outside: float


@dataclass
class Previous:
    """Both models at the token before the root token; `draft_probs [columns]`, warped, are over the draft's tokens."""

    target: TargetProbs
    draft_probs: Float[Tensor, " columns"]
    target_hidden: Float[Tensor, " d_target"]
    draft_hidden: Float[Tensor, " d_draft"]


def read_target(probs: Float[Tensor, " vocab"], support: Int[Tensor, " columns"] | None) -> TargetProbs:
    """Read the target's distribution `[vocab]`; `support [columns]` are the draft's own tokens, all of them if None."""
    probs = probs.float()
    entropy = -float(probs @ _log(probs))
    if support is None:
        return TargetProbs(entropy, _array(probs), 0.0)
    own = probs[support]
    return TargetProbs(entropy, _array(own), max(0.0, 1 - float(own.sum())))


def root_features(
    previous: Previous | None,
    *,
    draft_probs: Float[Tensor, " columns"],
    draft_logits: Float[Tensor, " columns"],
    draft_hidden: Float[Tensor, " d_draft"],
    target_hidden_size: int,
    context_length: int,
    sampling: Sampling,
    match: Match | None = None,
    support: Int[Tensor, " columns"] | None = None,
) -> RootFeatures:
    """Features of a root from both models' distributions and hidden states, and from what could be copied.

    `previous` is None for a one-token context, whose features of prev are zeros. `draft_probs` (warped) and
    `draft_logits` are the draft's at the root, `[columns]`, over its own tokens; `draft_hidden [d_draft]` is its hidden
    state there. `context_length` counts the tokens before the root token; `support [columns]` as for `copy_scalars`.
    """
    root = _array(draft_probs)
    entropies, distances = [0.0, 0.0, -float(root @ _log(root))], [0.0, 0.0, 0.0]
    if previous is None:
        sizes = target_hidden_size, len(draft_hidden)
        target_hidden, draft_hidden_prev = (torch.from_numpy(np.zeros(size, np.float32)) for size in sizes)
    else:
        target_hidden, draft_hidden_prev = previous.target_hidden.float().cpu(), previous.draft_hidden.float().cpu()
        entropies[:2], distances = _compare(previous.target, _array(previous.draft_probs))
    setting = float(context_length), sampling.temperature, sampling.top_p
    copy = copy_scalars(match, draft_logits, support)
    scalars = [*entropies, *distances, *_unwarped(_array(draft_logits)), *setting, *copy]
    return RootFeatures(
        target_hidden=target_hidden,
        draft_hidden_prev=draft_hidden_prev,
        draft_hidden_root=draft_hidden.float().cpu(),
        scalars=torch.from_numpy(np.array(scalars, np.float32)),
    )


def copy_scalars(
    match: Match | None, draft_logits: Float[Tensor, " columns"], support: Int[Tensor, " columns"] | None
) -> list[float]:
    """What is known of a copy at a root, in the order of `SCALARS`; zeros without a match.

    `draft_logits [columns]` are the draft's at the root, over its own tokens `support [columns]` (all of them if None).
    Its probability of the copied token is at temperature 1, as `draft_confidence_root` is.
    """
    if match is None:
        return [0.0] * (len(SCALARS) - len(DRAFTED_SCALARS))
    agreement, distance = match.agreeing / match.places, math.log(match.distance)
    probability = _probability(_array(draft_logits), support, match.token)
    length, places, in_prompt = map(float, (match.length, match.places, match.in_prompt))
    return [length, places, agreement, match.recent, distance, in_prompt, probability]


def _probability(logits: Array, support: Tensor | None, token: int) -> float:
    """`softmax(logits)` at a token, 0 at one that has no column."""
    column = token
    if support is not None:
        column = min(int(torch.searchsorted(support, token)), len(support) - 1)
        if int(support[column]) != token:
            return 0.0
    shifted: Any = logits - logits.max()
    weights: Any = shifted.exp() if isinstance(shifted, Tensor) else np.exp(shifted)
    return float(weights[column] / weights.sum())


def _compare(target: TargetProbs, draft: Array) -> tuple[list[float], list[float]]:
    """Both entropies; `KL(target || draft)`, `KL(draft || target)`, and the L1 distance."""
    log_draft = _log(draft)
    draft_entropy = -float(draft @ log_draft)
    cross_entropy = -float(target.probs @ log_draft) - target.outside * math.log(FLOOR)
    difference: Any = target.probs - draft
    distances = [
        cross_entropy - target.entropy,
        -float(draft @ _log(target.probs)) - draft_entropy,
        float(abs(difference).sum()) + target.outside,
    ]
    return [target.entropy, draft_entropy], distances


def _unwarped(logits: Array) -> tuple[float, float]:
    """Entropy and largest probability of `softmax(logits)`."""
    shifted = logits - logits.max()
    if isinstance(shifted, Tensor):
        shifted = shifted.clamp_(min=LOWEST)
        weights: Array = shifted.exp()
    else:
        shifted = np.maximum(shifted, LOWEST)
        weights = np.exp(shifted)
    total = float(weights.sum())
    return math.log(total) - float(weights @ shifted) / total, 1 / total


def _array(values: Tensor) -> Array:
    """In float32. Torch takes longer to start an operation on a few thousand numbers than numpy to do it."""
    values = values.float()
    return values.numpy() if values.device.type == "cpu" else values


def _log(probs: Array) -> Array:
    """Natural logarithm, floored at 1e-10, so that disjoint supports give a large finite divergence."""
    return probs.clamp(min=FLOOR).log_() if isinstance(probs, Tensor) else np.log(np.maximum(probs, FLOOR))
