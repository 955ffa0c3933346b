"""Distances between distributions by their textbook formulas; the last dimension is the vocabulary."""

import torch
from torch import Tensor


def entropy(probs: Tensor) -> Tensor:
    """Shannon entropy in nats over the last dimension."""
    terms: Tensor = torch.special.entr(probs)
    return terms.sum(-1)


def kl_divergence(probs: Tensor, other: Tensor, floor: float = 1e-10) -> Tensor:
    """`KL(probs || other)` in nats; `other` is floored, so that disjoint supports give a large finite number."""
    own: Tensor = torch.special.xlogy(probs, probs)
    return (own - probs * other.clamp(min=floor).log()).sum(-1)


def l1_distance(probs: Tensor, other: Tensor) -> Tensor:
    """`sum |probs - other|`, between 0 and 2."""
    return (probs - other).abs().sum(-1)
