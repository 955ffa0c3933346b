"""Checks of a pair against transformers: vocabularies, tree passes, caches, and greedy texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from selector.decoding.decoder import Decoder
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.language_model import LanguageModel, prefill
from selector.engine.reference_generate import transformers_generate
from selector.losslessness.finding import DIVERGENT, IDENTICAL, NEAR_TIE, OK, Finding
from selector.losslessness.reference import logits_of, one_by_one

#      0 -+- 1 --- 3 --- 6
#         +- 2 -+- 4 --- 7
#               +- 5
PARENTS = [-1, 0, 0, 1, 2, 2, 3, 4]
LEAVES, KEPT = (5, 6, 7), (0, 2, 5)  # the kept path is not the first branch
LENGTHS = (1, 64, 129)
GREEDY = Sampling(0.0)
FACTOR = 6.0  # a tree pass is one more grouping, and its largest difference is one more extreme of the same noise


def check_vocabulary(pair: Any) -> Finding:
    """All ids that the pair works with lie in the target's vocabulary."""
    draft, size = pair.draft, pair.target.vocab_size
    support = range(size) if draft.support is None else draft.support.tolist()
    wrong = [token for token in (*support, *pair.end_ids) if not 0 <= token < size]
    tokenizer = getattr(pair, "tokenizer", None)
    known = "" if tokenizer is None else f", tokenizer {len(tokenizer)}"
    detail = f"target {size} rows, draft {draft.rows} rows and {len(support)} output tokens{known}"
    if wrong or draft.vocab_size != size or len(set(support)) != len(support):
        return Finding("vocabulary", "both", DIVERGENT, f"{detail}; outside: {wrong[:5]}")
    return Finding("vocabulary", "both", OK, detail)


def check_passes(
    name: str,
    plain: HuggingFaceModel,
    prompt: Sequence[int],
    engine: LanguageModel | None = None,
    lengths: Sequence[int] = LENGTHS,
) -> tuple[list[Finding], float]:
    """Tree rows and the rows behind a kept path at several lengths of context; and the noise of the logits.

    `engine` is what decoding runs (default: `plain` itself), `plain` the model to compare with. The noise is the
    largest difference between two groupings of the same tokens in transformers' own passes.
    """
    engine = engine or plain
    texts = list(prompt) * ((max(lengths) + len(PARENTS)) // len(prompt) + 1)
    trees, behind, noise, top = 0.0, 0.0, 0.0, 0.0
    for length in lengths:
        context, tree = texts[:length], texts[length : length + len(PARENTS)]
        prefill(engine, context)
        rows = engine.extend(torch.tensor(tree), PARENTS).logits.float()
        for leaf in LEAVES:
            path = _path(leaf)
            expected = one_by_one(plain, context, [tree[row] for row in path])
            trees = max(trees, float((rows[path] - expected).abs().max()))
            at_once = logits_of(plain, [context + [tree[row] for row in path]])[length:]
            noise = max(noise, float((at_once - expected).abs().max()))
            top = max(top, float(expected.abs().max()))
        engine.keep(KEPT)
        after = engine.extend(torch.tensor(tree[:2]), [-1, 0]).logits.float()
        expected = one_by_one(plain, context + [tree[row] for row in KEPT], tree[:2])
        behind = max(behind, float((after - expected).abs().max()))
        engine.keep([])
    rounding = torch.finfo(plain.model.dtype).eps * top
    noise = max(noise, rounding)
    return [_finding("tree logits", name, trees, noise, plain), _finding("cache", name, behind, noise, plain)], noise


def check_text(
    subject: str, decoder: Decoder, target: HuggingFaceModel, prompt: Sequence[int], count: int, noise: float
) -> Finding:
    """Greedy text after one prompt against plain `generate`'s. `noise` is that of the logits (see `check_passes`).

    A text that is not `generate`'s is a near tie if the target, scoring it in one pass, finds every token of it within
    twice the noise of its best token: each of the two logits may move by the noise. Tokens behind the first
    difference are checked as strictly as those before it.
    """
    plain = transformers_generate(target, prompt, count, GREEDY)
    generation = decoder.generate(list(prompt), count, GREEDY, end_ids=())
    tokens, copied = generation.tokens, generation.stats.accepted_copies
    if tokens == plain:
        return Finding("greedy text", subject, IDENTICAL, f"{count} tokens" + f", {copied} copied" * (copied > 0))
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


def _path(node: int) -> list[int]:
    return [] if node < 0 else [*_path(PARENTS[node]), node]


def _finding(check: str, name: str, difference: float, noise: float, model: HuggingFaceModel) -> Finding:
    dtype = str(model.model.dtype).removeprefix("torch.")
    detail = f"largest difference {difference:.1e} in {dtype}, {noise:.1e} between groupings in plain passes"
    return Finding(check, name, OK if difference <= FACTOR * noise else DIVERGENT, detail)
