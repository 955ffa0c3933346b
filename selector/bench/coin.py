"""Arms that share one running text: a coin decides at every step whose turn it is.

Whole texts differ far more than arms do. Drawing the arm of each step compares arms at the grain where they decide, on
the same contexts and at the same moments of the machine. The coin is seeded on its own and tossed before the tree is
drawn, so the text follows the target's distribution whatever comes up.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from selector.bench.adjusted import covariates
from selector.decoding.decoder import Decoder, DraftWarp
from selector.decoding.policies import Policy, RootView
from selector.decoding.stats import SECTIONS
from selector.distributions import Sampling
from selector.engine.huggingface import Pair
from selector.features import Match, RootFeatures
from selector.latency import LatencyProfile
from selector.offline.labelled_roots import LOOP_MATCH, LOOP_SHARE
from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Action
from selector.trees.verifier import Verification, Verifier

DECODING = tuple(name for name in SECTIONS if name != "prefill")


class StepArm(NamedTuple):
    """A verifier and a policy that take single steps.

    Attributes:
        against, rule: names of the arms that it must beat: its best static tree, and a rule.
        weight: how often it comes up. Tokens a step of an arm that copies vary most, so it takes more steps.
    """

    name: str
    verifier: Verifier
    policy: Policy
    against: str | None = None
    rule: str | None = None
    weight: int = 1


class StepRecord(NamedTuple):
    """One step.

    Attributes:
        prompt, setting, arm: indices.
        expansion: the action that was taken.
        tokens: tokens committed, those past an end token included.
        expected: their expectation given the drawn tree, which has the same mean and less noise.
        seconds: `[sections]` by `DECODING`, without the prompt's passes.
        charge: seconds to add: the draft's first pass also runs tokens that earlier steps left to it, while a step
            answers for what it leaves itself, unless its arm never drafts. Differences of the profile's draft passes.
        looping: whether its text loops.
        known: covariates of its root, see `adjusted`.
    """

    prompt: int
    setting: int
    arm: int
    expansion: Action
    tokens: int
    expected: float
    seconds: tuple[float, ...]
    charge: float
    looping: bool = False
    known: tuple[float, ...] = ()


class WatchedRoot:
    """A root that remembers whether its features were asked for, which runs the draft."""

    def __init__(self, root: RootView) -> None:
        self._root, self.sampling, self.asked = root, root.sampling, False

    @property
    def context_length(self) -> int:
        """Tokens before the root token."""
        return self._root.context_length

    @property
    def match(self) -> Match | None:
        """Where the last tokens stood before."""
        return self._root.match

    @property
    def lag(self) -> int:
        """Tokens before the root token that the draft lacks."""
        return self._root.lag

    def features(self, previous: bool = True) -> RootFeatures:
        """The root's features."""
        self.asked = True
        return self._root.features(previous)


def may_draft(arm: StepArm) -> bool:
    """Whether the arm drafts at some roots: where it does not say what it may choose, it may."""
    actions = getattr(arm.policy, "actions", None)
    return actions is None or any(action.drafted.max_depth > 0 for action in actions)


class Coin:
    """The policy and the verifier of a decoder whose steps are taken by arms in random turn."""

    name = "coin"

    def __init__(self, arms: Sequence[StepArm], seed: int) -> None:
        self._arms, self._random = arms, random.Random(seed)
        self._weights = [arm.weight for arm in arms]
        self.arm, self.drafts, self.context, self.lag = 0, False, 0, 0
        self.match: Match | None = None
        self._scored: tuple[DraftTree, Tensor] | None = None

    def choose(self, root: RootView) -> Action:
        """The action of the arm that the coin draws."""
        self.arm = self._random.choices(range(len(self._arms)), self._weights)[0]
        self.root = WatchedRoot(root)
        self.context, self.lag, self.match = root.context_length, root.lag, root.match
        action = self._arms[self.arm].policy.choose(self.root)
        self.drafts = self.root.asked or action.drafted.max_depth > 0
        return action

    def verify(self, tree: DraftTree, target_probs: Tensor, generator: torch.Generator | None) -> Verification:
        """The outcome that the arm's verifier samples; the scored tree is kept for `expected`."""
        self._scored = tree, target_probs
        return self._arms[self.arm].verifier.verify(tree, target_probs, generator)

    def expected(self) -> float:
        """`E[tau + 1 | tree]` of the last step, whose outcome it does not depend on."""
        assert self._scored is not None
        return float(self._arms[self.arm].verifier.expected_tokens(*self._scored))

    def distribution(self, tree: DraftTree, target_probs: Tensor) -> Tensor:
        """The outcome's distribution under the arm's verifier."""
        return self._arms[self.arm].verifier.distribution(tree, target_probs)

    def expected_tokens(self, tree: DraftTree, target_probs: Tensor) -> Tensor:
        """`E[tau + 1 | tree]` under the arm's verifier."""
        return self._arms[self.arm].verifier.expected_tokens(tree, target_probs)


class OpenEnd:
    """An ending that cuts no tree: the text ends with the step that reaches an end token or the length."""

    def __init__(self, max_new_tokens: int, end_ids: Sequence[int]) -> None:
        self.tokens: list[int] = []
        self.finish: str | None = None
        self._length, self._end_ids = max_new_tokens, frozenset(end_ids)

    @property
    def remaining(self) -> int:
        """More tokens than any tree holds."""
        return 1 << 30

    @property
    def text(self) -> list[int]:
        """The tokens up to the end or the length, which do not depend on how far the last step went."""
        ends = (place + 1 for place, token in enumerate(self.tokens) if token in self._end_ids)
        return self.tokens[: min(self._length, next(ends, self._length))]

    def accept(self, committed: Sequence[int]) -> list[int]:
        """All tokens of a step."""
        self.tokens += committed
        if self._end_ids.intersection(committed):
            self.finish = "end"
        elif len(self.tokens) >= self._length:
            self.finish = "length"
        return list(committed)


def coin_text(
    pair: Pair,
    arms: Sequence[StepArm],
    profile: LatencyProfile,
    prompt: Sequence[int],
    sampling: Sampling,
    seed: int,
    max_new_tokens: int,
    draft_warp: DraftWarp = "same",
    place: tuple[int, int] = (0, 0),
) -> list[StepRecord]:
    """Records of the steps of one text, whose (prompt, setting) is `place`.

    Steps up to the one in which the draft runs the prompt are left out, whoever took them: its first pass is one with
    the prompt's, and arms are compared over the same steps. Expectations and matches are computed between steps, off
    the clock. A text loops where more than `LOOP_SHARE` of its steps end in `LOOP_MATCH` tokens or more that stand in
    the answer already.
    """
    coin, ending = Coin(arms, seed), OpenEnd(max_new_tokens, pair.end_ids)
    decoder = Decoder(pair, coin, coin, draft_warp)
    before = dict.fromkeys(SECTIONS, 0.0)
    ready = not any(map(may_draft, arms))  # whether the draft has run the prompt
    found, matches = [], []
    for step in decoder.steps(prompt, ending, sampling, seed):
        seconds = tuple(step.stats.seconds[name] - before[name] for name in DECODING)
        before = dict(step.stats.seconds)
        charge, counts = 0.0, ready
        if coin.drafts:
            charge = _draft_seconds(profile, coin.context, 1 + coin.root.lag)
            charge -= _draft_seconds(profile, coin.context, 1 + coin.lag)
            ready = True
        elif may_draft(arms[coin.arm]):
            charge = _draft_seconds(profile, coin.context, 1 + len(step.tokens))
            charge -= _draft_seconds(profile, coin.context, 1)
        if counts:
            tokens, expected = len(step.tokens), coin.expected()
            record = StepRecord(*place, coin.arm, step.expansion, tokens, expected, seconds, charge)
            found.append((record, coin.context, coin.match))
        matches.append(coin.match)
    long = sum(match is not None and match.length >= LOOP_MATCH and not match.in_prompt for match in matches)
    text, looping = [*prompt, *ending.text], long > LOOP_SHARE * len(matches)
    return [record._replace(looping=looping, known=covariates(text, root, match)) for record, root, match in found]


def _draft_seconds(profile: LatencyProfile, context: int, rows: int) -> float:
    return float(profile.draft_time(torch.tensor([context]), rows))
