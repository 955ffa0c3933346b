"""The recipes' models: true shapes, and random ones of the same kind, small, with tokenizers of the same manners.

Small ones keep what sets a family apart: the ratio of query to key heads, the width of a head apart from the hidden
size, tied embeddings, layers with a sliding window, rows that pad the vocabulary to different sizes, and templates.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.auto import CONFIG_MAPPING

Shapes = dict[str, Any]
NAMES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size",
)  # fmt: skip
TOKENS = 100  # of each small tokenizer
SMALL = {"max_position_embeddings": 1024, "initializer_range": 0.3, "bos_token_id": None, "pad_token_id": None}

CHATML = """{%- if messages[0].role == 'system' -%}
<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% else -%}
<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if not (loop.first and message.role == 'system') -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
HEADERS = """{%- for message in messages -%}
{%- if loop.first -%}{{ bos_token }}{%- endif -%}
<|start_header_id|>{{ message.role }}<|end_header_id|>

{{ message.content | trim }}<|eot_id|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|start_header_id|>assistant<|end_header_id|>

{% endif -%}"""
TURNS = """{{ bos_token }}
{%- if messages[0].role == 'system' -%}
{%- set first, turns = messages[0].content + '\n\n', messages[1:] -%}
{%- else -%}
{%- set first, turns = '', messages -%}
{%- endif -%}
{%- for message in turns -%}
{%- if message.role not in ('user', 'assistant') or (message.role == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif -%}
<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}
{{ first if loop.first }}{{ message.content | trim }}<end_of_turn>
{% endfor -%}
{%- if add_generation_prompt -%}<start_of_turn>model
{% endif -%}"""


@dataclass(frozen=True)
class Family:
    """A tokenizer's manners: `bos` is put before every text by the tokenizer too, where there is one."""

    template: str
    specials: tuple[str, ...]
    ends: tuple[str, ...]
    bos: str | None


QWEN = Family(CHATML, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), ("<|im_end|>", "<|endoftext|>"), None)
LLAMA = Family(
    HEADERS,
    ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ("<|end_of_text|>", "<|eot_id|>"),
    "<|begin_of_text|>",
)
GEMMA = Family(TURNS, ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"), ("<eos>", "<end_of_turn>"), "<bos>")


@dataclass(frozen=True)
class Recipe:
    """Kinds and shapes of target and draft, `true` and `small`, and the GiB of the cards that the recipe is for."""

    family: Family
    kinds: tuple[str, str]
    true: tuple[Shapes, Shapes]
    small: tuple[Shapes, Shapes]
    cards: tuple[int, ...]


def _shapes(*sizes: int, **others: Any) -> Shapes:
    return {**dict(zip(NAMES, sizes, strict=True)), **others}


TIED = {"tie_word_embeddings": True}
WINDOW = {
    "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 8,
    "initializer_range": 0.1,  # Gemma scales its embeddings, which are its head too: with more, it repeats itself
}  # fmt: skip
IMAGES = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27,
    "patch_size": 14, "image_size": 896,
}  # fmt: skip
SMALL_IMAGES = IMAGES | {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
QWEN_DRAFT = _shapes(896, 4864, 24, 14, 2, 151_936, **TIED)
SMALL_QWEN_DRAFT = _shapes(56, 80, 2, 14, 2, 104, **TIED)
RECIPES = {
    "qwen2.5-32b": Recipe(
        QWEN, ("qwen2", "qwen2"), (_shapes(5120, 27_648, 64, 40, 8, 152_064), QWEN_DRAFT),
        (_shapes(40, 64, 2, 10, 2, 112), SMALL_QWEN_DRAFT), (80,),
    ),
    "qwen2.5-7b": Recipe(
        QWEN, ("qwen2", "qwen2"), (_shapes(3584, 18_944, 28, 28, 4, 152_064), QWEN_DRAFT),
        (_shapes(56, 64, 2, 14, 2, 112), SMALL_QWEN_DRAFT), (24,),
    ),
    "llama-3-70b": Recipe(
        LLAMA, ("llama", "llama"),
        (_shapes(8192, 28_672, 80, 64, 8, 128_256), _shapes(4096, 14_336, 32, 32, 8, 128_256)),
        (_shapes(64, 64, 2, 16, 2, TOKENS), _shapes(32, 48, 2, 8, 2, TOKENS)), (80, 80),
    ),
    "gemma-3-27b": Recipe(
        GEMMA, ("gemma3", "gemma3_text"),
        (
            {"text_config": _shapes(5376, 21_504, 62, 32, 16, 262_208, head_dim=128), "vision_config": IMAGES},
            _shapes(640, 2048, 18, 4, 1, 262_144, head_dim=256),
        ),
        (
            {"text_config": SMALL | WINDOW | _shapes(44, 64, 2, 4, 2, 104, head_dim=8), "vision_config": SMALL_IMAGES},
            WINDOW | _shapes(20, 32, 2, 4, 1, TOKENS, head_dim=16),
        ),
        (80,),
    ),
}  # fmt: skip


def on_meta(kind: str, shapes: Shapes) -> PreTrainedModel:
    """A model without weights, in bfloat16."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**shapes), dtype=torch.bfloat16)
    return model


def save_small_pair(recipe: Recipe, folder: Path) -> None:
    """Random models of the recipe's kinds in `folder/target` and `folder/draft`, with their tokenizer."""
    for seed, name in enumerate(("target", "draft")):
        save_tokenizer(recipe.family, folder / name)
        torch.manual_seed(seed)
        model: Any = AutoModelForCausalLM.from_config(
            CONFIG_MAPPING[recipe.kinds[seed]](**(SMALL | recipe.small[seed]))
        )
        specials = recipe.family.specials
        model.generation_config.eos_token_id = [specials.index(end) for end in recipe.family.ends]
        model.save_pretrained(folder / name)


def save_tokenizer(family: Family, folder: Path) -> None:
    """Words of one letter to three, special tokens first."""
    words = ["<unk>", "user", "assistant", "system", "model", "You", "are", "a"]
    vocabulary = [*family.specials, *words]
    vocabulary += [f"w{number}" for number in range(TOKENS - len(vocabulary))]
    ids = {word: index for index, word in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if family.bos:
        tokenizer.post_processor = processors.TemplateProcessing(f"{family.bos} $A", special_tokens=[(family.bos, 0)])
    saved = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=family.bos, eos_token=family.ends[0], unk_token="<unk>",
        additional_special_tokens=list(family.specials),
    )  # fmt: skip
    saved.chat_template = family.template
    saved.save_pretrained(folder)
