"""A pair of transformers models: loading, the checks that they fit together, and prompts as token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from selector.config import EMBEDDED_TARGET, PairConfig
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.early_exit import is_early_exit, load_draft
from selector.engine.embedded import embedded_folder, quiet
from selector.engine.prompts import encode_chat
from selector.errors import UserError, first_line
from selector.shipped import find

__all__ = ["HuggingFaceModel", "Pair", "load_pair", "pair_with"]

PADDING = 1024  # models of one family round their vocabulary up to different sizes, but not further apart than this
MAP = "map"
DAMAGED = OSError, ValueError, TypeError, AttributeError, SafetensorError  # what transformers raises for bad folders


@dataclass
class Pair:
    """A target and a draft over one vocabulary.

    Attributes:
        tokenizer: the target's; it may hold a chat template.
        end_ids: tokens that end a text.
        config: what was asked for.
    """

    target: HuggingFaceModel
    draft: HuggingFaceModel
    tokenizer: PreTrainedTokenizerBase
    end_ids: tuple[int, ...]
    dtype: torch.dtype
    config: PairConfig

    def encode(self, prompt: str, chat_template: bool = True) -> list[int]:
        """Token ids of a prompt, as a user's turn of the tokenizer's chat template where it has one."""
        return encode_chat(self.tokenizer, [{"role": "user", "content": prompt}], chat_template)

    def decode(self, tokens: list[int]) -> str:
        """Text of generated tokens, without special tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def load_pair(config: PairConfig) -> Pair:
    """Load both models. Raises UserError when one is missing, is not supported, or they do not fit together."""
    check_folder("draft", config.draft)
    if not is_early_exit(find(config.draft)):
        check_draft(config.draft, _load_tokenizer("target", target_source(config)))
    return pair_with(*load_target(config), config)


def check_draft(draft: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a draft (a folder or a hub id) that is missing or has other tokens, before it is loaded."""
    check_folder("draft", draft)
    if not is_early_exit(find(draft)):
        check_vocabularies(tokenizer, _load_tokenizer("draft", draft))


def pair_with(
    target_model: PreTrainedModel,
    tokenizer: Any,
    config: PairConfig,
    draft_model: PreTrainedModel | None = None,
    pack: bool = True,
) -> Pair:
    """The pair of a loaded target; the draft is `draft_model`, or loaded from `config.draft` in the target's dtype.

    `tokenizer` may be None where prompts and texts are token ids; for `pack` see `HuggingFaceModel`.
    """
    device, dtype = target_model.device, target_model.dtype
    target = HuggingFaceModel(target_model, tokenizer=tokenizer, pack=pack)
    support = None
    if draft_model is None and is_early_exit(find(config.draft)):
        draft_model, support = load_draft(find(config.draft), target_model)
    elif draft_model is None:
        draft_model = _load_model("draft", config.draft, dtype, device)
    embeddings: Any = draft_model.get_input_embeddings()
    rows = int(embeddings.num_embeddings)
    if abs(rows - target.vocab_size) > PADDING:
        message = f"draft {config.draft!r} has a vocabulary of {rows} tokens and the target one of "
        raise UserError(f"{message}{target.vocab_size}: take a draft with the target's vocabulary.")
    draft = HuggingFaceModel(draft_model, support, tokenizer, target.vocab_size, pack)
    return Pair(target, draft, tokenizer, end_tokens(target_model, tokenizer), dtype, config)


def load_target(config: PairConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The target's transformers model and its tokenizer."""
    if config.threads:
        torch.set_num_threads(config.threads)
    mapped = config.device == MAP
    device = torch.device(pick_device("auto" if mapped else config.device))
    source = target_source(config)
    tokenizer = _load_tokenizer("target", source)
    return _load_model("target", source, pick_dtype(config.dtype, device), None if mapped else device), tokenizer


def target_source(config: PairConfig) -> str:
    """Folder or hub id of the target; the embedded one is unpacked on first use."""
    return str(embedded_folder()) if config.target == EMBEDDED_TARGET else config.target


def pick_device(name: str) -> str:
    """`auto` is CUDA where there is one. Raises UserError for a device that torch cannot use here."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise UserError(f"pair.device is {name!r}: torch cannot use it here; give auto, cpu, cuda or {MAP}.") from None
    return name


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the device multiplies it natively, else float32."""
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    return torch.bfloat16 if device.type == "cpu" and _cpu_multiplies_bfloat16() else torch.float32


def _cpu_multiplies_bfloat16() -> bool:
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, check, lambda: False)()) for check in checks)


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Tokens that end a text: the generation config's, else the tokenizer's."""
    found: Any = getattr(model.generation_config, "eos_token_id", None)
    if found is None:
        found = getattr(tokenizer, "eos_token_id", None)
    if found is None:
        return ()
    return tuple(int(token) for token in (found if isinstance(found, (list, tuple)) else [found]))


def check_vocabularies(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> None:
    """Refuse a draft whose tokens do not mean what the target's mean; either may have tokens that the other lacks."""
    own, other = ({index: token for token, index in each.get_vocab().items()} for each in (target, draft))
    shared = own.keys() & other.keys()
    different = sorted(index for index in shared if own[index] != other[index])
    if not different and len(shared) > len(own) // 2:
        return
    detail = f"they share {len(shared)} tokens of {len(own)}"
    if different:
        first = different[0]
        detail = f"{len(different)} tokens differ, the first is {first}: {other[first]!r}, not {own[first]!r}"
    raise UserError(
        f"draft has another vocabulary than the target ({detail}): "
        "take a draft of the target's family, or make one with `ddte distill`."
    )


def _load_model(field: str, source: str, dtype: torch.dtype, device: torch.device | None) -> PreTrainedModel:
    """`device` None spreads the layers over all devices that accelerate finds."""
    check_folder(field, source)
    place = {"device_map": "auto"} if device is None else {}
    try:
        with quiet():
            model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **place)
    except DAMAGED as error:
        raise _not_loaded(field, source, error) from None
    moved: PreTrainedModel = model if device is None else model.to(device)
    return moved


def _load_tokenizer(field: str, source: str) -> PreTrainedTokenizerBase:
    check_folder(field, source)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source)
    except DAMAGED as error:
        raise _not_loaded(field, source, error) from None
    return tokenizer


def check_folder(field: str, source: str) -> None:
    """A path that does not exist must not be taken for a hub id."""
    looks_like_path = source.startswith((".", "/", "~")) or source.count("/") > 1
    if looks_like_path and not find(source).is_dir():
        raise UserError(f"{field} is {source!r}: no such folder; give a model folder or a hub id.")


def _not_loaded(field: str, source: str, error: Exception) -> UserError:
    return UserError(f"{field} is {source!r}: it could not be loaded as a causal language model ({first_line(error)}).")
