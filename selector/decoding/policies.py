"""Policies: what tree to draft or copy at a root.

They see the context and past steps only, which keeps decoding lossless.
"""

from __future__ import annotations

import re
from typing import Protocol

import torch

from selector.decoding.checks import check_expansion
from selector.distributions import Sampling
from selector.errors import UserError
from selector.features import Match, RootFeatures
from selector.latency import CONTEXT_STEP, LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.checkpoint_config import HEADS, Head
from selector.network.network import available
from selector.trees.expansion import Action, Expansion, parse_action


class RootView(Protocol):
    """What a policy may know: everything here is fixed before the tree is drawn."""

    sampling: Sampling

    @property
    def context_length(self) -> int:
        """Tokens before the root token."""
        ...

    @property
    def match(self) -> Match | None:
        """Where the last tokens stood earlier in the text, to copy from there; None where the last one is new."""
        ...

    @property
    def lag(self) -> int:
        """Tokens before the root token that the draft has not run; its next pass does."""
        ...

    def features(self, previous: bool = True) -> RootFeatures:
        """Root features; the first call of a step runs the draft on the root token. Those of prev may be left out."""
        ...


class Policy(Protocol):
    """Maps a root to an action.

    One that says which `actions` it may choose is checked against the verifier before a text starts.
    """

    def choose(self, root: RootView) -> Action:
        """The action of this step; it is cut where fewer tokens are left, and copies only where there is a match."""
        ...


class FixedPolicy:
    """The same action at every root; `(1, 0, 0)` never runs the draft. `replaced` is what it stands in for."""

    def __init__(self, expansion: Action | tuple[int, int, int], replaced: str = "") -> None:
        self.expansion, self.replaced = check_expansion(expansion), replaced
        self.actions = (self.expansion,)

    def __str__(self) -> str:
        kind = "static tree" if isinstance(self.expansion, Expansion) else "static action"
        return f"the {kind} {self.expansion}" + f", in place of {self.replaced}" * bool(self.replaced)

    def choose(self, root: RootView) -> Action:
        """The fixed action."""
        return self.expansion


class MatchRule:
    """One action where the root's match is of `least` tokens or more, another elsewhere."""

    def __init__(self, least: int, then: Action, otherwise: Action) -> None:
        self.least, self.then, self.otherwise = least, check_expansion(then), check_expansion(otherwise)
        self.actions = (self.then, self.otherwise)

    def __str__(self) -> str:
        return f"match {self.least}: {self.then}, else {self.otherwise}"

    def choose(self, root: RootView) -> Action:
        """By the length of the root's match."""
        match = root.match
        return self.then if match is not None and match.length >= self.least else self.otherwise


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
            raise UserError(f"policy is {head!r}: choose auto, {', '.join(HEADS)}, or an action as (2, 0, 2).")
        self.head: Head = named or checkpoint.config.default_head
        profile = profile or checkpoint.profile
        contexts = torch.arange(0, profile.contexts[-1] + CONTEXT_STEP, CONTEXT_STEP)
        space, taken = checkpoint.space, available(checkpoint.config.shape).matched
        pairs = list(zip(space.expansions, taken.tolist(), strict=True))
        self.actions = tuple(action for action, takes in pairs if takes)
        self._taken = tuple(action if takes else action.drafted for action, takes in pairs)
        times, parts = profile.selector_times(contexts, space), list(space.drafted_parts)
        self._prices = {  # what cannot be taken costs what is taken in its place
            True: checkpoint.prices(torch.where(taken, times, times[:, parts])).numpy(),
            False: checkpoint.prices(times[:, parts]).numpy(),
        }

    def __str__(self) -> str:
        return f"the selector's {self.head} head"

    def choose(self, root: RootView) -> Action:
        """The action of the checkpoint's head."""
        row = (root.context_length + CONTEXT_STEP // 2) // CONTEXT_STEP
        prices = self._prices[root.match is not None]
        own = prices[min(row, len(prices) - 1)]  # flat past the longest context of the profile
        features = root.features(previous=self.checkpoint.reads_previous)
        return self._taken[self.checkpoint.choose(features, own, self.head)]


def parse_policy(text: str) -> FixedPolicy | MatchRule:
    """Read one action, see `parse_action`, or a rule as `match 2: copy 8 | (2, 0, 2), else (2, 0, 2)`."""
    rule = re.fullmatch(r"\s*match\s+([1-9]\d*)\s*:(.*),\s*else\s(.*)", text)
    if rule is None:
        return FixedPolicy(parse_action(text))
    return MatchRule(int(rule[1]), parse_action(rule[2]), parse_action(rule[3]))


def fixed_policy(policy: str) -> FixedPolicy | MatchRule | None:
    """What `decode.policy` names that needs no selector; None where it names one's head, or `auto`."""
    if policy in ("auto", *HEADS):
        return None
    try:
        return parse_policy(policy)
    except UserError:
        choices = ", ".join(("auto", *HEADS))
        raise UserError(
            f"decode.policy is {policy!r}: choose {choices} or a tree (K, L1, L2), a copy as copy 8 | (2, 0, 2), or a "
            "rule as match 2: copy 8, else (2, 0, 2)."
        ) from None
