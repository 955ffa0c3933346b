"""`target.generate(**inputs, custom_generate=ddte_generate, ...)`: the decoder in transformers' own place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.generation.logits_process import LogitsProcessorList
from transformers.generation.stopping_criteria import StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput

from selector.config import PairConfig
from selector.decoding.checks import check_expansion, check_length, check_tokens
from selector.decoding.decoder import Decoder
from selector.decoding.generate_arguments import check_arguments, check_kinds, refuse
from selector.decoding.stats import DecodeStats
from selector.decoding.stopping import CriteriaStopping
from selector.engine.huggingface import Pair, check_draft, pair_with
from selector.errors import UserError
from selector.network.checkpoint import SelectorCheckpoint
from selector.trees.expansion import Expansion

KEPT = "_ddte_decoders"  # attribute of a target that holds its decoders
VERIFIER = "traversal"


@dataclass
class DdteOutput(GenerateDecoderOnlyOutput):
    """What `return_dict_in_generate=True` gives: `sequences [1, length]`, and the statistics of decoding."""

    stats: DecodeStats | None = None


def ddte_generate(
    model: Any,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    checkpoint: Path | str | None = None,
    draft: PreTrainedModel | Path | str = PairConfig.draft,
    verifier: str | None = None,
    expansion: Expansion | tuple[int, int, int] | None = None,
    guard: bool = True,
    tokenizer: Any = None,
    streamer: Any = None,
    assistant_model: Any = None,
    synced_gpus: bool = False,
    **model_kwargs: Any,
) -> Tensor | DdteOutput:
    """A decoding loop for `generate`, with the law of plain `generate` and the same arguments.

    Give a `checkpoint` folder for its selector, or an `expansion` `(K, L1, L2)` for a fixed tree, or both for that
    tree with the checkpoint's verifier. `draft` is a draft folder, a hub id, or a loaded model. With a
    `functools.partial` these need not be given at each call. What is loaded stays at the target, so that the next
    call with the same settings starts at once. Sampled text is determined by `torch.manual_seed`. Every way to end
    a text is honoured (`stopping_criteria` too, asked after each token). Raises UserError for an argument that
    cannot be honoured, a selector of another pair, and a text that may grow past a model's positions.
    """
    check_kinds(checkpoint=checkpoint, draft=draft, verifier=verifier, expansion=expansion, guard=guard)
    sampling = check_arguments(input_ids, generation_config, logits_processor, model_kwargs)
    for name, value in {"assistant_model": assistant_model, "synced_gpus": synced_gpus or None}.items():
        if value is not None:
            raise refuse(name, value)
    settings = _Settings(
        str(checkpoint) if checkpoint else None, verifier, tuple(expansion) if expansion else None, guard
    )
    draft = str(draft) if isinstance(draft, Path) else draft
    decoder = _decoder(model, draft, settings, tokenizer)
    prompt = [int(token) for token in input_ids[0].tolist()]
    check_tokens(prompt, decoder.pair.target.vocab_size)
    stopping = CriteriaStopping(input_ids, stopping_criteria)
    check_length({"target": decoder.pair.target, "draft": decoder.pair.draft}, len(prompt), stopping.remaining)
    seed = 0 if sampling.temperature == 0 else int(torch.randint(2**63 - 1, ()).item())
    stats = DecodeStats()
    for step in decoder.steps(prompt, stopping, sampling, seed):
        stats = step.stats
        if streamer is not None:
            for token in step.tokens:
                streamer.put(torch.tensor([token]))
    if streamer is not None:
        streamer.end()
    sequences: Any = stopping.sequence
    return DdteOutput(sequences=sequences, stats=stats) if generation_config.return_dict_in_generate else sequences


@dataclass(frozen=True)
class _Settings:
    checkpoint: str | None
    verifier: str | None
    expansion: tuple[int, ...] | None
    guard: bool


class _Decoders(dict[Any, Decoder]):
    """The decoders of one target, kept at the target so that they live as long; a copy of it begins with none.

    `weights` says of each with which weights it was made (see `_written`).
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[Any, Any] = {}

    def __deepcopy__(self, memo: Any) -> _Decoders:
        return _Decoders()

    def __reduce__(self) -> Any:
        return _Decoders, ()


def _decoder(model: Any, draft: PreTrainedModel | str, settings: _Settings, tokenizer: Any) -> Decoder:
    """The target's decoder with these settings, made when first asked for."""
    decoders: _Decoders = model.__dict__.setdefault(KEPT, _Decoders())
    key = draft if isinstance(draft, str) else id(draft), settings, model.device, model.dtype
    weights = _written(model), None if isinstance(draft, str) else _written(draft)
    known = decoders.get(key)
    if known is None or known.pair.target.model is not model or decoders.weights[key] != weights:
        known = decoders[key] = _build(model, draft, settings, tokenizer)
        decoders.weights[key] = weights
    return known


def _written(model: PreTrainedModel) -> int:
    """Another number when a weight was replaced or written in place, as training does. A decoder packs weights."""
    return hash(tuple((w.data_ptr(), 0 if w.is_inference() else w._version) for w in model.parameters()))


def _build(model: Any, draft: PreTrainedModel | str, settings: _Settings, tokenizer: Any) -> Decoder:
    if settings.checkpoint is None and settings.expansion is None:
        raise UserError("checkpoint and expansion are left out: give ddte_generate a checkpoint folder or (K, L1, L2).")
    checkpoint = SelectorCheckpoint.load(settings.checkpoint) if settings.checkpoint else None
    own = checkpoint.config.verifier if checkpoint else VERIFIER
    verifier = settings.verifier or own
    if settings.expansion is None and verifier != own:
        raise UserError(f"verifier is {verifier!r}, and the checkpoint's selector is for {own!r}: leave it out.")
    pair = _pair(model, draft, tokenizer)
    if settings.expansion is None:
        assert checkpoint is not None
        return Decoder.with_selector(pair, checkpoint, guard=settings.guard)
    draft_warp: Any = checkpoint.config.draft_warp if checkpoint else "same"
    return Decoder(pair, verifier, check_expansion(settings.expansion), draft_warp)


def _pair(model: Any, draft: PreTrainedModel | str, tokenizer: Any) -> Pair:
    target = str(model.config._name_or_path)
    tokenizer = tokenizer or _own_tokenizer(target)
    if not isinstance(draft, str):
        return pair_with(model, tokenizer, PairConfig(target, str(draft.config._name_or_path)), draft)
    if tokenizer is not None:
        check_draft(draft, tokenizer)
    return pair_with(model, tokenizer, PairConfig(target, draft))


def _own_tokenizer(source: str) -> Any:
    """The tokenizer beside a model's weights; None where there is none. Only a checkpoint's fingerprint needs it."""
    try:
        return AutoTokenizer.from_pretrained(source) if source else None
    except (OSError, ValueError):
        return None


def _hand_on(extract: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """`extract` with what it drops for every callable: the streamer, the tokenizer (without which transformers
    refuses `stop_strings`) and the assistant. Calls of other methods than `ddte_generate` are left as they are.
    """

    @wraps(extract)
    def extended(
        self: Any, custom_generate: Any, kwargs: dict[str, Any], synced_gpus: Any, assistant_model: Any, streamer: Any
    ) -> dict[str, Any]:
        given = {
            "tokenizer": kwargs.get("tokenizer"),
            "streamer": streamer,
            "assistant_model": assistant_model,
            "synced_gpus": synced_gpus or None,
        }
        extracted = extract(self, custom_generate, kwargs, synced_gpus, assistant_model, streamer)
        if getattr(custom_generate, "func", custom_generate) is not ddte_generate:
            return extracted
        return extracted | {name: value for name, value in given.items() if value is not None}

    return extended


_mixin: Any = GenerationMixin
_mixin._extract_generation_mode_kwargs = _hand_on(_mixin._extract_generation_mode_kwargs)
