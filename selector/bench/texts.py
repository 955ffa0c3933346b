"""Arms of a decoding bench that write whole texts: transformers' `generate`, alone and with its own speculation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers.generation.streamers import BaseStreamer

from selector.distributions import Sampling
from selector.engine.huggingface import Pair
from selector.engine.reading_draft import reads_target
from selector.engine.reference_generate import assistant, transformers_generate
from selector.engine.timing import Timer, TokenTimes
from selector.errors import first_line

PLAIN, ASSISTED, LOOKUP = "plain", "assisted", "prompt lookup"
LOOKUP_TOKENS = 10  # the setting that transformers' documentation shows

Run = Callable[[Sequence[int], int, Sampling, int, BaseStreamer | None], list[int]]


@dataclass
class TextArm:
    """One way to write a text, and what it did.

    Attributes:
        runs: `(tokens, seconds)` after the first token by (prompt, setting).
        texts: all new tokens, likewise.
        failures: one line for each text that raised.
    """

    name: str
    run: Run
    runs: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict)
    texts: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """What a row holds beside figures."""
        return {"texts": len(self.runs), "failures": len(self.failures), "errors": sorted(set(self.failures))}


def text_arms(pair: Pair, assisted: bool, lookup: bool) -> list[TextArm]:
    """Plain `generate` first, then assisted generation with the same draft and prompt lookup, as asked for."""
    options: dict[str, dict[str, Any]] = {PLAIN: {}}
    if assisted and not reads_target(pair.draft):  # `generate` has no hidden states to give
        options[ASSISTED] = {"assistant_model": assistant(pair.draft)}
    if lookup:
        options[LOOKUP] = {"prompt_lookup_num_tokens": LOOKUP_TOKENS}
    return [TextArm(name, _runner(pair, extra)) for name, extra in options.items()]


def _runner(pair: Pair, extra: dict[str, Any]) -> Run:
    def run(
        prompt: Sequence[int], count: int, sampling: Sampling, seed: int, streamer: BaseStreamer | None
    ) -> list[int]:
        return transformers_generate(
            pair.target, prompt, count, sampling, seed, pair.end_ids, streamer=streamer, **extra
        )

    return run


def write_text(
    arm: TextArm, pair: Pair, prompt: Sequence[int], sampling: Sampling, seed: int, count: int, place: tuple[int, int]
) -> None:
    """One text of an arm, timed after its first token. What it raises is kept as a failure, and the bench goes on."""
    timer = Timer(pair.target.device)
    streamer = TokenTimes(timer)
    try:
        tokens = arm.run(prompt, count, sampling, seed, streamer)
    except Exception as error:
        arm.failures.append(f"{type(error).__name__}: {first_line(error)}")
        return
    arm.texts[place] = tokens
    if len(tokens) > streamer.counts[0]:
        arm.runs[place] = len(tokens) - streamer.counts[0], timer.now() - streamer.moments[0]
