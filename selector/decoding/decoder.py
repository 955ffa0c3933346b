"""Lossless decoding of one prompt: choose a tree, draft it, score it, verify it, commit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import torch

from selector.config import PairConfig, check_draft_warp
from selector.decoding.checks import check_action, check_call, check_length, check_tokens, token_ids
from selector.decoding.generation import Generation, Step
from selector.decoding.guard import PLAIN, Guard
from selector.decoding.pass_times import PassTimes, decoding_times
from selector.decoding.policies import FixedPolicy, Policy, SelectorPolicy, fixed_policy
from selector.decoding.sequence import SpeculativeSequence
from selector.decoding.stats import DecodeStats, Stopwatch
from selector.decoding.stopping import Ending, Stopping, TextStream
from selector.distributions import Sampling
from selector.engine.huggingface import Pair, load_pair
from selector.network.checkpoint import SelectorCheckpoint
from selector.trees.expansion import Action, CopyExpansion, Expansion
from selector.trees.verifier import Verifier
from selector.trees.verifiers import get_verifier

__all__ = ["Decoder", "Generation", "Step", "clip"]

GREEDY = Sampling(temperature=0.0)
UNDRAFTED = "the draft's logits hold NaN or infinity: such places are not drafted from, which costs speed and no more"
DraftWarp = Literal["same"] | tuple[float, float]


class Decoder:
    """Decodes with a pair, a verifier and a policy; any number of texts beside each other, also in threads.

    Sampled text follows the target's law at `sampling` exactly, whatever the draft, verifier and policy; greedy
    text is the target's own up to rounding of its passes.

    Args:
        pair: target and draft, as `load_pair` or `pair_with` makes them.
        verifier: the name of one, or an object with the methods of `Verifier`.
        policy: what chooses the action of each step: an object with a method `choose(root)`, or one action for every
            step, a tree (K, L1, L2) or a `CopyExpansion`.
        draft_warp: `same` as the target's, or the draft's own (temperature, top-p).
        guard: pauses speculation while pass times say that plain decoding is faster; see `Guard`.

    Returns:
        From `generate` a `Generation` with the text, its tokens and the statistics; from `stream` one `Step` after
        another, as they are committed.

    Raises:
        UserError: an unknown verifier, a tree that the verifier does not take, a `draft_warp` out of range.

    Example:
        >>> decoder = ddte.Decoder.from_checkpoint("checkpoints/smollm2-135m/traversal")
        >>> decoder.generate("Why is the sky blue?", 128, ddte.Sampling(temperature=0.6)).text
        >>> fixed = ddte.Decoder(decoder.pair, "specinfer", (3, 0, 2))
    """

    def __init__(
        self,
        pair: Pair,
        verifier: Verifier | str,
        policy: Policy | Action | tuple[int, int, int],
        draft_warp: DraftWarp = "same",
        guard: Guard | None = None,
    ) -> None:
        self.pair, self.guard = pair, guard
        check_draft_warp(draft_warp)
        self.draft_warp: DraftWarp = draft_warp
        self.verifier = get_verifier(verifier) if isinstance(verifier, str) else verifier
        self.policy: Policy = FixedPolicy(policy) if isinstance(policy, tuple) else policy
        for action in getattr(self.policy, "actions", ()):
            check_action(self.verifier, action)

    @classmethod
    def from_checkpoint(
        cls,
        folder: Path | str,
        *,
        target: str = PairConfig.target,
        draft: str = PairConfig.draft,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
        device: str = "auto",
        profile: PassTimes = "machine",
        head: str = "auto",
    ) -> Decoder:
        """A decoder with an exported selector and the pair that it names, or the given one where that is another.

        For `profile` and `head` see `with_selector`. Raises UserError when the folder is not a checkpoint, or was
        trained for another pair.
        """
        checkpoint = SelectorCheckpoint.from_pretrained(folder)
        given = PairConfig(target=target, draft=draft, dtype=dtype, device=device)
        return cls.with_selector(load_pair(checkpoint.config.models.given_to(given)), checkpoint, profile, head)

    @classmethod
    def with_selector(
        cls,
        pair: Pair,
        checkpoint: SelectorCheckpoint,
        profile: PassTimes = "machine",
        head: str = "auto",
        guard: bool = True,
    ) -> Decoder:
        """A decoder with a loaded selector, which weighs trees by the pass times of `profile`; so does the guard.

        `profile` is `machine`: the checkpoint's times if they are this machine's, else those kept in the user's cache
        (`DDTE_CACHE`), measured now where there are none. Or it is `checkpoint` or a `LatencyProfile`, with a warning
        where those are of another machine or type. `head` is one of `HEADS`, an action or a rule in place of the
        selector's choice (see `fixed_policy`), or `auto`: then a selector that did not pay in training gives way to its
        best static tree, which the decoder's `policy` says.
        """
        verifier, warp, fixed = checkpoint.config.verifier, checkpoint.config.draft_warp, fixed_policy(head)
        if fixed is None:
            checkpoint.check_pair(pair.target.fingerprint, pair.draft.fingerprint)
            if head == "auto" and not checkpoint.beats_static:
                fixed = FixedPolicy(checkpoint.best_static, "a selector that did not pay in training")
        if fixed is not None and not guard:  # nothing asks for times
            return cls(pair, verifier, fixed, warp)
        times = decoding_times(profile, pair, checkpoint)
        policy = fixed or SelectorPolicy(checkpoint, times, head)
        return cls(pair, verifier, policy, warp, Guard(times, fixed is None) if guard else None)

    def refresh(self) -> None:
        """Take both models as they are now: weights, adapters, hooks. Texts in progress go on with the old ones.

        On a CPU a decoder runs packed copies of the weights (`pair.target.snapshot` tells), which a later change of
        the model does not reach. The rows of an early-exit draft's head stay those that it was loaded with.
        """
        self.pair.target.refresh()
        self.pair.draft.refresh()

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int = 256,
        sampling: Sampling = GREEDY,
        seed: int = 0,
        stop_strings: str | Sequence[str] = (),
        end_ids: Sequence[int] | None = None,
        chat_template: bool = True,
    ) -> Iterator[Step]:
        """Steps as they are committed. A text prompt is put into the chat template; token ids are taken as they are.

        `end_ids` None takes the pair's. Raises UserError for an empty prompt, an unknown token, settings out of
        range, and a text that may grow past a model's positions, before anything runs.
        """
        ids, stopping = self._prepare(prompt, max_new_tokens, sampling, seed, stop_strings, end_ids, chat_template)
        return self._with_text(self.steps(ids, stopping, sampling, seed), stopping)

    def generate(
        self,
        prompt: str | Sequence[int],
        max_new_tokens: int = 256,
        sampling: Sampling = GREEDY,
        seed: int = 0,
        *,
        stop_strings: str | Sequence[str] = (),
        end_ids: Sequence[int] | None = None,
        chat_template: bool = True,
    ) -> Generation:
        """The whole text; see `stream`."""
        ids, stopping = self._prepare(prompt, max_new_tokens, sampling, seed, stop_strings, end_ids, chat_template)
        stats = DecodeStats(policy=str(self.policy))
        for step in self.steps(ids, stopping, sampling, seed):
            stats = step.stats
        text = stopping.cut(self.pair.decode(stopping.tokens))
        return Generation(text, stopping.tokens, stats, str(stopping.finish))

    def encode(self, prompt: str | Sequence[int], chat_template: bool = True) -> list[int]:
        """Checked token ids of a prompt."""
        if isinstance(prompt, str):
            ids = self.pair.encode(prompt, chat_template)
        else:
            ids = token_ids("prompt", prompt, "a text, or a list of token ids")
        check_tokens(ids, self.pair.target.vocab_size)
        return ids

    def _prepare(
        self,
        prompt: str | Sequence[int],
        max_new_tokens: int,
        sampling: Sampling,
        seed: int,
        stop_strings: str | Sequence[str],
        end_ids: Sequence[int] | None,
        chat_template: bool,
    ) -> tuple[list[int], Stopping]:
        pair = self.pair
        check_call(max_new_tokens, sampling, seed, stop_strings)
        ids = self.encode(prompt, chat_template)
        ends = pair.end_ids if end_ids is None else token_ids("end_ids", end_ids, "a list of token ids")
        stopping = Stopping(max_new_tokens, ends, stop_strings, pair.decode)
        check_length({"target": pair.target, "draft": pair.draft}, len(ids), max_new_tokens)
        return ids, stopping

    def steps(self, prompt: Sequence[int], ending: Ending, sampling: Sampling, seed: int) -> Iterator[Step]:
        """The decoding loop on checked token ids, until `ending` has its end; the steps hold tokens and no text."""
        pair, stats = self.pair, DecodeStats(policy=str(self.policy))
        stopwatch = Stopwatch(stats.seconds)
        generator = torch.Generator(pair.target.device).manual_seed(int(seed))
        draft_sampling = sampling if isinstance(self.draft_warp, str) else Sampling(*self.draft_warp)
        sequence = SpeculativeSequence(pair.target, pair.draft, sampling, draft_sampling, generator, stopwatch)
        guard = None if self.guard is None else self.guard.fresh()
        with stopwatch.section("prefill"):
            sequence.prefill(prompt)
        while ending.finish is None:
            action = self._choose(sequence, guard, ending.remaining, stats, stopwatch)
            committed = sequence.step(action, self.verifier)
            tokens = ending.accept(committed.tokens)
            stats.tokens += len(tokens)
            stats.steps += 1
            stats.accepted += len(committed.tokens) - 1
            stats.accepted_copies += committed.accepted_copies
            stats.drafted += committed.drafted
            stats.copied += committed.copied
            stats.actions[action] += 1
            if committed.undrafted and not stats.undrafted:
                warnings.warn(UNDRAFTED, RuntimeWarning, stacklevel=2)
            stats.undrafted += committed.undrafted
            stopwatch.switch("other")
            yield Step(tokens, "", action, stats, ending.finish)
            stopwatch.restart()

    def _choose(
        self,
        sequence: SpeculativeSequence,
        guard: Guard | None,
        remaining: int,
        stats: DecodeStats,
        stopwatch: Stopwatch,
    ) -> Action:
        """The policy's action, cut to the tokens that are left; no tree where the guard holds it back."""
        if guard is not None and not guard.speculates(sequence.context_length):
            stats.guarded += 1
            return PLAIN
        with stopwatch.section("selector"):
            chosen = sequence.available(self.policy.choose(sequence))
        action = clip(chosen, remaining - 1)
        check_action(self.verifier, action)
        if guard is not None:
            guard.chosen(action)
        return action

    def _with_text(self, steps: Iterator[Step], stopping: Stopping) -> Iterator[Step]:
        stream, written = TextStream(self.pair.decode), 0
        for step in steps:
            step.text = stream.add(step.tokens, last=step.finish is not None)
            if step.finish == "stop":
                full = stopping.cut(self.pair.decode(stopping.tokens))
                step.text = full[written:]
            written += len(step.text)
            yield step


def clip(action: Action, depth: int) -> Action:
    """The part of a tree that is at most `depth` deep: the trunk is kept first."""
    if isinstance(action, CopyExpansion):
        copied = min(action.length, depth)
        drafted = clip(action.drafted, depth if action.beside else depth - copied).drafted
        return CopyExpansion(copied, drafted, action.beside).canonical() if copied else drafted
    trunk = min(action.trunk_length, depth)
    length = min(action.branch_length, depth - trunk)
    return Expansion(action.num_branches, trunk, length).canonical()
