"""`target.generate(**inputs, custom_generate=ddte_generate, ...)`: the decoder in transformers' own place."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel
from transformers.generation.logits_process import LogitsProcessorList
from transformers.generation.stopping_criteria import StoppingCriteriaList, StopStringCriteria
from transformers.generation.utils import GenerateDecoderOnlyOutput

from selector.config import PairConfig
from selector.decoding.checks import check_expansion, check_length, check_tokens
from selector.decoding.decoder import Decoder
from selector.decoding.generate_arguments import check_arguments, check_dropped, check_kinds
from selector.decoding.pass_times import PassTimes
from selector.decoding.stats import DecodeStats
from selector.decoding.stopping import CriteriaStopping
from selector.engine.huggingface import Pair, check_draft, pair_with
from selector.errors import UserError
from selector.network.checkpoint import SelectorCheckpoint
from selector.pair_names import ModelName
from selector.trees.expansion import Action

VERIFIER = "traversal"


@dataclass
class DdteOutput(GenerateDecoderOnlyOutput):
    """Output for `return_dict_in_generate=True`: `sequences [1, length]`, and the statistics of decoding."""

    stats: DecodeStats | None = None


def ddte_generate(
    model: Any,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    decoder: Decoder | None = None,
    checkpoint: SelectorCheckpoint | Path | str | None = None,
    draft: PreTrainedModel | Path | str | None = None,
    verifier: str | None = None,
    expansion: Action | tuple[int, int, int] | None = None,
    guard: bool = True,
    profile: PassTimes = "machine",
    tokenizer: Any = None,
    stop_strings: str | Sequence[str] | None = None,
    streamer: Any = None,
    **model_kwargs: Any,
) -> Tensor | DdteOutput:
    """A decoding loop for `generate`, with the law of plain `generate` and the same arguments.

    All is loaded anew in each call, and the target runs as it is at that moment, adapters and hooks included; a
    `decoder` that was built for this model answers faster. `generate` hands no `streamer` and no `tokenizer` to a
    callable: bind them with `functools.partial`. Sampled text is determined by `torch.manual_seed`. Every way to end a
    text is honoured (`stopping_criteria` too, asked after each token).

    Args:
        model, input_ids, logits_processor, stopping_criteria, generation_config: given by `generate`.
        decoder: loaded and packed once, a snapshot of the model until `decoder.refresh()`; takes the place of what
            follows, up to `profile`.
        checkpoint: a folder, `user/name` of the hub, or a loaded one, for its selector; with `expansion`, for its
            verifier.
        draft: a draft folder, a hub id, or a loaded model (default: the one that the checkpoint names, else the
            embedded target's).
        verifier: of an `expansion` without a checkpoint.
        expansion: one action for all steps, a tree (K, L1, L2) or a `CopyExpansion`.
        guard: pause speculation while pass times say that plain decoding is faster.
        profile: pass times that the selector goes by; see `Decoder.with_selector`. Those of this machine are measured
            in the first call and kept in the user's cache.
        tokenizer: for `stop_strings`.
        stop_strings: texts that end the answer.
        streamer: is put the prompt and then each token.
        model_kwargs: other arguments of `generate`; one that cannot be honoured is refused by name.

    Returns:
        `[1, length]` token ids, the prompt among them; with `return_dict_in_generate` a `DdteOutput`.

    Raises:
        UserError: an argument that cannot be honoured, a selector of another pair, and a text that may grow past a
            model's positions.

    Example:
        >>> sampling = {"do_sample": True, "temperature": 0.6, "top_k": 0}
        >>> target.generate(**inputs, **sampling, custom_generate=ddte.ddte_generate, expansion=(3, 0, 2), draft=draft)
    """
    check_dropped(inspect.currentframe())
    check_kinds(
        checkpoint=checkpoint, draft=draft, verifier=verifier, expansion=expansion, guard=guard, profile=profile
    )
    sampling = check_arguments(input_ids, generation_config, logits_processor, model_kwargs)
    if decoder is None:
        decoder = _build(model, draft, checkpoint, verifier, expansion, guard, profile, tokenizer)
    elif decoder.pair.target.model is not model:
        raise UserError("decoder was built for another model object than the one that generates: build one of this.")
    elif (checkpoint, verifier, expansion, guard, profile, draft) != (
        None, None, None, True, "machine", None,
    ):  # fmt: skip
        raise UserError("decoder is given beside settings of its own: leave out checkpoint, draft and the like.")
    prompt = [int(token) for token in input_ids[0].tolist()]
    check_tokens(prompt, decoder.pair.target.vocab_size)
    stopping = CriteriaStopping(
        input_ids, _criteria(stopping_criteria, stop_strings, tokenizer or decoder.pair.tokenizer)
    )
    check_length({"target": decoder.pair.target, "draft": decoder.pair.draft}, len(prompt), stopping.remaining)
    seed = 0 if sampling.temperature == 0 else int(torch.randint(2**63 - 1, ()).item())
    stats = DecodeStats()
    if streamer is not None:
        streamer.put(input_ids.cpu())  # as `generate` does
    for step in decoder.steps(prompt, stopping, sampling, seed):
        stats = step.stats
        if streamer is not None:
            for token in step.tokens:
                streamer.put(torch.tensor([token]))
    if streamer is not None:
        streamer.end()
    sequences: Any = stopping.sequence
    return DdteOutput(sequences=sequences, stats=stats) if generation_config.return_dict_in_generate else sequences


def _criteria(criteria: StoppingCriteriaList, stop_strings: Any, tokenizer: Any) -> StoppingCriteriaList:
    if stop_strings is None:
        return criteria
    if tokenizer is None:
        raise UserError("stop_strings needs a tokenizer: give functools.partial(ddte_generate, tokenizer=tokenizer).")
    own: Any = StopStringCriteria(tokenizer, stop_strings)
    return StoppingCriteriaList([*criteria, own])


def _build(
    model: Any,
    draft: PreTrainedModel | Path | str | None,
    source: SelectorCheckpoint | Path | str | None,
    verifier: str | None,
    expansion: Action | tuple[int, ...] | None,
    guard: bool,
    profile: PassTimes,
    tokenizer: Any,
) -> Decoder:
    """A decoder for one call, which copies none of the target's weights."""
    if source is None and expansion is None:
        raise UserError("checkpoint and expansion are left out: give ddte_generate a checkpoint folder or (K, L1, L2).")
    checkpoint: Any = SelectorCheckpoint.from_pretrained(source) if isinstance(source, (Path, str)) else source
    own = checkpoint.config.verifier if checkpoint else VERIFIER
    if expansion is None and verifier not in (None, own):
        raise UserError(f"verifier is {verifier!r}, and the checkpoint's selector is for {own!r}: leave it out.")
    named = checkpoint.config.models.draft if checkpoint else ModelName()
    if isinstance(draft, (Path, str)):
        named, draft = ModelName(str(draft)), None
    pair = _pair(model, named if draft is None else draft, tokenizer)
    if expansion is None:
        return Decoder.with_selector(pair, checkpoint, profile, guard=guard)
    draft_warp: Any = checkpoint.config.draft_warp if checkpoint else "same"
    return Decoder(pair, verifier or own, check_expansion(expansion), draft_warp)


def _pair(model: Any, draft: PreTrainedModel | ModelName, tokenizer: Any) -> Pair:
    """`draft` is loaded, or a name; an empty one means the embedded target's."""
    target = str(model.config._name_or_path)
    tokenizer = tokenizer or _own_tokenizer(target)
    if not isinstance(draft, ModelName):
        return pair_with(model, tokenizer, PairConfig(target, str(draft.config._name_or_path)), draft, pack=False)
    config = PairConfig(target, draft.name or PairConfig.draft, draft_revision=draft.revision)
    if tokenizer is not None:
        check_draft(config.draft, tokenizer, config.draft_revision)
    return pair_with(model, tokenizer, config, pack=False)


def _own_tokenizer(source: str) -> Any:
    """The tokenizer beside a model's weights; None where there is none. Only a checkpoint's fingerprint needs it."""
    try:
        return AutoTokenizer.from_pretrained(source) if source else None
    except (OSError, ValueError):
        return None
