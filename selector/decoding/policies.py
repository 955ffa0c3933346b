"""Policies: what tree to draft at a root. They see the context and past steps only, which keeps decoding lossless."""

from __future__ import annotations

from typing import Protocol

import torch

from selector.decoding.checks import check_expansion
from selector.distributions import Sampling
from selector.errors import UserError
from selector.features import RootFeatures
from selector.latency import CONTEXT_STEP, LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.checkpoint_config import HEADS, Head
from selector.trees.expansion import Expansion


class RootView(Protocol):
    """What a policy may know: everything here is fixed before the tree is drawn."""

    sampling: Sampling

    @property
    def context_length(self) -> int:
        """Tokens before the root token."""
        ...

    def features(self, previous: bool = True) -> RootFeatures:
        """Root features; the first call of a step runs the draft on the root token. Those of prev may be left out."""
        ...


class Policy(Protocol):
    """Maps a root to an expansion."""

    def choose(self, root: RootView) -> Expansion:
        """The expansion of this step; it may be cut where fewer tokens are left."""
        ...


class FixedPolicy:
    """The same expansion at every root; `(1, 0, 0)` never runs the draft. `replaced` is what it stands in for."""

    def __init__(self, expansion: Expansion | tuple[int, int, int], replaced: str = "") -> None:
        self.expansion, self.replaced = check_expansion(expansion), replaced

    def __str__(self) -> str:
        return f"the static tree {self.expansion}" + f", in place of {self.replaced}" * bool(self.replaced)

    def choose(self, root: RootView) -> Expansion:
        """The fixed expansion."""
        return self.expansion


class SelectorPolicy:
    """A trained selector. `profile` holds this machine's pass times (default: those it was trained under)."""

    def __init__(
        self,
        checkpoint: SelectorCheckpoint,
        profile: LatencyProfile | None = None,
        head: str = "auto",
    ) -> None:
        self.checkpoint = checkpoint
        named = next((name for name in HEADS if name == head), None)
        if named is None and head != "auto":
            raise UserError(f"policy is {head!r}: choose auto, {', '.join(HEADS)}, or an expansion (K, L1, L2).")
        self.head: Head = named or checkpoint.config.default_head
        profile = profile or checkpoint.profile
        contexts = torch.arange(0, profile.contexts[-1] + CONTEXT_STEP, CONTEXT_STEP)
        self._prices = checkpoint.prices(profile.selector_times(contexts, checkpoint.space)).numpy()

    def __str__(self) -> str:
        return f"the selector's {self.head} head"

    def choose(self, root: RootView) -> Expansion:
        """The action of the checkpoint's head."""
        row = (root.context_length + CONTEXT_STEP // 2) // CONTEXT_STEP
        prices = self._prices[min(row, len(self._prices) - 1)]  # flat past the longest context of the profile
        features = root.features(previous=self.checkpoint.reads_previous)
        return self.checkpoint.space.drafted[self.checkpoint.choose(features, prices, self.head)]


def fixed_tree(policy: str) -> Expansion | None:
    """The tree that `decode.policy` names; None where it names a head of the selector, or `auto`."""
    if policy in ("auto", *HEADS):
        return None
    try:
        return Expansion.parse(policy)
    except UserError:
        choices = ", ".join(("auto", *HEADS))
        raise UserError(f"decode.policy is {policy!r}: choose {choices} or a tree (K, L1, L2).") from None
