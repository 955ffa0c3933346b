"""A pair of transformers models: loading, the checks that they fit together, and prompts as token ids."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from selector.config import EMBEDDED_TARGET, PairConfig
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.early_exit import is_early_exit, load_draft, reads_target
from selector.engine.embedded import embedded_folder, quiet
from selector.engine.naming import pair_names
from selector.engine.prompts import encode_chat
from selector.engine.reading_draft import ReadingDraft
from selector.errors import UserError, first_line
from selector.hub import find_model
from selector.pair_names import PairNames
from selector.shipped import find

__all__ = ["HuggingFaceModel", "Pair", "load_pair", "pair_with"]

PADDING = 1024  # models of one family round their vocabulary up to different sizes, but not further apart than this
MAP, SAME = "map", "same"
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

    @property
    def names(self) -> PairNames:
        """What artefacts call the two models."""
        return pair_names(self.config, self.target.model, self.draft.model)

    def encode(self, prompt: str, chat_template: bool = True) -> list[int]:
        """Token ids of a prompt, as a user's turn of the tokenizer's chat template where it has one."""
        return encode_chat(self.tokenizer, [{"role": "user", "content": prompt}], chat_template)

    def decode(self, tokens: list[int]) -> str:
        """Text of generated tokens, without special tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def load_pair(config: PairConfig) -> Pair:
    """Load both models.

    Args:
        config: names of the models, and where and how they run.

    Returns:
        The two models, the target's tokenizer, and the tokens that end a text.

    Raises:
        UserError: a model that is missing or not supported, two that do not fit together, a device that is not here.

    Example:
        >>> pair = ddte.load_pair(ddte.PairConfig("my-target", "my-draft", dtype="float32"))
        >>> pair.decode(pair.encode("Why is the sky blue?"))
    """
    check_placement(config)
    if not is_early_exit(find(config.draft)):
        tokenizer = _load_tokenizer("target", target_source(config), config.revision)
        check_draft(config.draft, tokenizer, config.draft_revision)
    return pair_with(*load_target(config), config)


def check_draft(draft: str, tokenizer: PreTrainedTokenizerBase, revision: str = "") -> None:
    """Refuse a draft (a folder or a hub id) that is missing or has other tokens, before it is loaded."""
    check_folder("draft", draft)
    if not is_early_exit(find(draft)):
        check_vocabularies(tokenizer, _load_tokenizer("draft", draft, revision))


def pair_with(
    target_model: PreTrainedModel,
    tokenizer: Any,
    config: PairConfig,
    draft_model: PreTrainedModel | None = None,
    pack: bool = True,
) -> Pair:
    """The pair of a loaded target.

    Args:
        target_model: a causal language model of transformers.
        tokenizer: the target's; None where prompts and texts are token ids.
        config: names the models in what is made with the pair, and the draft to load.
        draft_model: a loaded draft; without one `config.draft` is loaded in the target's dtype.
        pack: pack weights for fast passes on a CPU; a packed model is a snapshot.

    Returns:
        What `load_pair` gives.

    Raises:
        UserError: a model that is not supported, a draft of another vocabulary.

    Example:
        >>> target, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        >>> pair = ddte.pair_with(target, tokenizer, ddte.PairConfig(folder, "my-draft"))
    """
    dtype = target_model.dtype
    target = HuggingFaceModel(target_model, tokenizer=tokenizer, pack=pack)
    support = None
    if draft_model is None and is_early_exit(find(config.draft)):
        draft_model, support = load_draft(find(config.draft), target_model)
    elif draft_model is None:
        device = target_model.device if config.draft_device == SAME else torch.device(config.draft_device)
        draft_model = _load_model("draft", config.draft, config.draft_revision, config, dtype, device_map={"": device})
    embeddings: Any = draft_model.get_input_embeddings()
    rows = int(embeddings.num_embeddings)
    if abs(rows - target.vocab_size) > PADDING:
        message = f"draft {config.draft!r} has a vocabulary of {rows} tokens and the target one of "
        raise UserError(f"{message}{target.vocab_size}: take a draft with the target's vocabulary.")
    kind = ReadingDraft if reads_target(draft_model) else HuggingFaceModel
    draft = kind(draft_model, support, tokenizer, target.vocab_size, pack)
    return Pair(target, draft, tokenizer, end_tokens(target_model, tokenizer), dtype, config)


def load_target(config: PairConfig) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The target's transformers model and its tokenizer."""
    if config.threads:
        torch.set_num_threads(config.threads)
    device = check_placement(config)
    source, dtype = target_source(config), pick_dtype(config.dtype, device)
    options = placement(config, device) | quantized(config.quantization, dtype)
    tokenizer = _load_tokenizer("target", source, config.revision)
    return _load_model("target", source, config.revision, config, dtype, **options), tokenizer


def check_placement(config: PairConfig) -> torch.device:
    """The device of the target's input. Refuses a configuration that cannot be met here, before any download."""
    device = pick_device("auto" if config.device == MAP else config.device)
    if config.draft_device != SAME:
        pick_device(config.draft_device, "draft_device", (SAME, "cpu", "cuda"))
    for name in config.max_memory:
        if name != "cpu" and not _usable(int(name)):
            raise UserError(f"pair.max_memory has {name!r}, an accelerator that torch cannot use here: leave it out.")
    check_folder("pair.draft", config.draft)
    if config.target != EMBEDDED_TARGET:
        check_folder("pair.target", config.target)
    if config.quantization != "none":
        if find_spec("bitsandbytes") is None:
            way_out = "is missing: `pip install bitsandbytes`"
            raise UserError(f"pair.quantization is {config.quantization!r} and the package bitsandbytes {way_out}.")
        if is_early_exit(find(config.draft)):
            message = f"pair.quantization is {config.quantization!r}, but draft {config.draft!r} is made of layers of"
            raise UserError(f"{message} the target: give a draft model, or set it to none.")
    return torch.device(device)


def placement(config: PairConfig, device: torch.device) -> dict[str, Any]:
    """Arguments of `from_pretrained` that put the target on `device`, or spread it within `max_memory`."""
    if config.device != MAP:
        return {"device_map": {"": device}}
    limits = {int(key) if str(key).isdigit() else key: size for key, size in config.max_memory.items()}
    return {"device_map": "auto", "max_memory": limits or None}


def quantized(kind: str, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of `from_pretrained` for a target of fewer bits, NF4 (arXiv 2305.14314).

    LLM.int8 is none of the kinds: which columns it multiplies in float16 depends on all rows of a pass, so a token's
    distribution would depend on the rest of its tree.
    """
    if kind == "none":
        return {}
    four_bits: Any = BitsAndBytesConfig
    weights = four_bits(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_compute_dtype=dtype)
    return {"quantization_config": weights}


def target_source(config: PairConfig) -> str:
    """Folder or hub id of the target; the embedded one is unpacked on first use."""
    return str(embedded_folder()) if config.target == EMBEDDED_TARGET else config.target


def pick_device(name: str, field: str = "device", choices: tuple[str, ...] = ("auto", "cpu", "cuda", MAP)) -> str:
    """`auto` is CUDA where there is one. Raises UserError for a device that torch cannot use here."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not _usable(name):
        ways = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise UserError(f"pair.{field} is {name!r}: torch cannot use it here; give {ways}.")
    return name


def _usable(device: str | int) -> bool:
    """Whether torch can put something on it; a number counts the accelerators."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        return False
    return True


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


def _load_model(
    field: str, source: str, revision: str, config: PairConfig, dtype: torch.dtype, **options: Any
) -> PreTrainedModel:
    """Weights go straight to where the `device_map` of `options` says."""
    check_folder(field, source)
    if config.attn_implementation != "auto":
        options["attn_implementation"] = config.attn_implementation
    found = find_model(field, source, revision)
    options |= found.options if found else {}
    try:
        with quiet():
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
    except DAMAGED as error:
        raise _not_loaded(field, source, error) from None
    return model


def _load_tokenizer(field: str, source: str, revision: str) -> PreTrainedTokenizerBase:
    check_folder(field, source)
    found = find_model(field, source, revision)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **(found.options if found else {}))
    except DAMAGED as error:
        raise _not_loaded(field, source, error) from None
    return tokenizer


def check_folder(field: str, source: str) -> None:
    """A path that does not exist must not be taken for a hub id."""
    looks_like_path = source.startswith((".", "/", "~")) or source.count("/") > 1
    if looks_like_path and not find(source).is_dir():
        raise UserError(f"{field} is {source!r}: no such folder; give a model folder or a hub id.")


def _not_loaded(field: str, source: str, error: Exception) -> UserError:
    message = f"{field} is {source!r}: it could not be loaded as a causal language model ({first_line(error)})"
    return UserError(f"{message}; give a folder that `save_pretrained` wrote model and tokenizer into, or a hub id.")
