"""Which arguments of transformers' `generate` keep their meaning under `ddte_generate`; all others are refused by name.

What is honoured is listed; whatever else is set, in this or a later version of transformers, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as short
from types import FrameType, NoneType
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation.logits_process import (
    LogitNormalization,
    LogitsProcessorList,
    PrefixConstrainedLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from selector.distributions import Sampling
from selector.errors import UserError
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint

HONOURED = {
    "max_length", "max_new_tokens", "max_time", "stop_strings", "eos_token_id", "pad_token_id", "bos_token_id",
    "do_sample", "temperature", "top_k", "top_p", "renormalize_logits", "return_dict_in_generate",
}  # fmt: skip
WITHOUT_MEANING = {  # of beams, assistants, encoders and compiled passes, which are refused or not there
    "early_stopping", "length_penalty", "diversity_penalty", "num_assistant_tokens", "num_assistant_tokens_schedule",
    "assistant_confidence_threshold", "assistant_lookbehind", "target_lookbehind", "max_matching_ngram_size",
    "assistant_ensemble_weight", "decoder_start_token_id", "cache_config", "max_cache_len", "prefill_chunk_size",
    "compile_config", "disable_compile", "low_memory", "transformers_version", "continuous_batching_config",
}  # fmt: skip
SAMPLING_ONLY = {"min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"}
OFF = {"guidance_scale": 1, "min_new_tokens": 0}  # values without effect that are not the defaults
MODEL_INPUTS = {"attention_mask", "position_ids", "cache", "past_key_values", "use_cache", "logits_to_keep"}
WAY_OUT = "leave it out of the call and of the model's generation_config, or call generate without custom_generate"


KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "checkpoint": ((str, Path, SelectorCheckpoint, NoneType), "a checkpoint: a folder, user/name, or a loaded one"),
    "draft": ((str, Path, torch.nn.Module, NoneType), "a draft folder, a hub id or a loaded model"),
    "verifier": ((str, NoneType), "a verifier's name"),
    "expansion": ((tuple, list, NoneType), "(K, L1, L2)"),
    "guard": ((bool,), "True or False"),
    "profile": ((str, LatencyProfile), "a LatencyProfile, 'machine' or 'checkpoint'"),
}


def check_kinds(**given: Any) -> None:
    """Refuse own arguments of `ddte_generate` that are of another kind."""
    for name, value in given.items():
        kinds, way_out = KINDS[name]
        if not isinstance(value, kinds):
            raise UserError(f"{name} is {short(value)}: give {way_out}.")


def check_dropped(own: FrameType | None) -> None:
    """Refuse what `generate` was given and does not hand on to a callable; `own` is the callable's frame.

    To leave such a thing out in silence would let a reader of the streamer wait for ever.
    """
    caller = own and own.f_back
    if caller is None or "custom_generate" not in caller.f_locals:
        return
    for name, value in ((name, caller.f_locals.get(name)) for name in ("streamer", "assistant_model", "synced_gpus")):
        if value and name == "streamer":
            raise UserError("streamer is not handed on by generate: bind it, as partial(ddte_generate, streamer=..).")
        if value:
            raise refuse(name, value)


def check_arguments(
    input_ids: Tensor, config: GenerationConfig, processors: LogitsProcessorList, model_kwargs: Mapping[str, Any]
) -> Sampling:
    """The sampling that a call of `generate` asks for. Raises UserError that names what cannot be honoured."""
    _check_config(config)
    _check_inputs(input_ids, model_kwargs)
    _check_processors(config, processors)
    if not config.do_sample:
        return Sampling(0.0)
    values = {name: getattr(config, name) for name in ("temperature", "top_p", "top_k")}
    return Sampling(**{name: value for name, value in values.items() if value is not None})


def refuse(name: str, value: Any, off: Any = None) -> UserError:
    """The error for an argument that `ddte_generate` does not honour; `off` is its value without effect."""
    shown = short(value) if isinstance(value, (bool, int, float, str, list, tuple, dict)) else type(value).__name__
    way_out = WAY_OUT if off is None else f"give {name}={off!r}, or call generate without custom_generate"
    return UserError(f"{name} is {shown}, which ddte_generate does not support: {way_out}.")


def _check_config(config: GenerationConfig) -> None:
    off = config._get_default_generation_params() | OFF
    ignored = HONOURED | WITHOUT_MEANING | (set() if config.do_sample else SAMPLING_ONLY)
    names = vars(GenerationConfig()).keys() - ignored  # type: ignore[no-untyped-call]
    for name in sorted(names, reverse=True):  # min_new_tokens before the min_length that generate makes of it
        value = getattr(config, name, None)
        if not name.startswith("_") and value is not None and value != off.get(name, False):
            raise refuse(name, value, off.get(name))


def _check_inputs(input_ids: Tensor, model_kwargs: Mapping[str, Any]) -> None:
    if len(input_ids) != 1:
        raise UserError(f"input_ids hold {len(input_ids)} sequences: ddte_generate takes one; call it for each.")
    for name, value in model_kwargs.items():
        if value is not None and name not in MODEL_INPUTS:
            raise refuse(name, value)
    if model_kwargs.get("attention_mask") is not None:  # transformers leaves out a mask of ones
        raise UserError("attention_mask holds zeros: ddte_generate takes a prompt without padding; cut it off.")
    positions = model_kwargs.get("position_ids")
    if positions is not None and not torch.equal(positions.cpu()[0], torch.arange(input_ids.shape[1])):
        raise refuse("position_ids", positions.tolist())
    cache = model_kwargs.get("cache", model_kwargs.get("past_key_values"))
    if cache is not None and getattr(cache, "_is_user_defined", False):
        raise UserError(f"past_key_values is a cache of yours, which ddte_generate does not fill: {WAY_OUT}.")


def _check_processors(config: GenerationConfig, processors: LogitsProcessorList) -> None:
    """Whatever way a processor came in, it must be one of the warpers that the configuration names."""
    expected = _warpers(config)
    for processor in processors:
        if type(processor) in expected:
            expected.remove(type(processor))
        elif isinstance(processor, PrefixConstrainedLogitsProcessor):
            raise refuse("prefix_allowed_tokens_fn", processor)
        else:
            raise refuse("logits_processor", processor)


def _warpers(config: GenerationConfig) -> list[type]:
    warpers: list[type] = [LogitNormalization] if config.renormalize_logits else []
    if not config.do_sample:
        return warpers
    if config.temperature not in (None, 1.0):
        warpers.append(TemperatureLogitsWarper)
    if config.top_k not in (None, 0):
        warpers.append(TopKLogitsWarper)
    if config.top_p is not None and config.top_p < 1:
        warpers.append(TopPLogitsWarper)
    return warpers
