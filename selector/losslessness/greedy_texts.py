"""Greedy texts of a decoder against plain `generate`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from selector.decoding.decoder import Decoder
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.reference_generate import transformers_generate
from selector.losslessness.finding import DIVERGENT, IDENTICAL, NEAR_TIE, Finding
from selector.losslessness.reference import logits_of

GREEDY = Sampling(0.0)


def check_text(
    subject: str, decoder: Decoder, target: HuggingFaceModel, prompt: Sequence[int], count: int, noise: float
) -> Finding:
    """One prompt. `noise` is that of the logits (see `check_passes`).

    A text that is not `generate`'s is a near tie if the target, scoring it in one pass, finds every token of it within
    twice the noise of its best token: each of the two logits may move by the noise. Tokens behind the first
    difference are checked as strictly as those before it.
    """
    plain = transformers_generate(target, prompt, count, GREEDY)
    tokens = decoder.generate(list(prompt), count, GREEDY, end_ids=()).tokens
    if tokens == plain:
        return Finding("greedy text", subject, IDENTICAL, f"{count} tokens")
    gaps = gaps_of(target, prompt, tokens)
    first = next(place for place, pair in enumerate(zip(tokens, plain, strict=True)) if pair[0] != pair[1])
    worst = float(gaps.max())
    detail = f"differs from token {first} of {count}; largest gap to the best logit {worst:.1e}, noise {noise:.1e}"
    return Finding("greedy text", subject, NEAR_TIE if worst <= 2 * noise else DIVERGENT, detail)


def gaps_of(target: HuggingFaceModel, prompt: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """`[tokens]`: how far below the best logit each token of a text is."""
    logits = logits_of(target, [[*prompt, *tokens]])[len(prompt) - 1 : -1]
    chosen = logits[range(len(tokens)), list(tokens)]
    return logits.amax(1) - chosen
