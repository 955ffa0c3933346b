"""Tiny random models of every supported architecture."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto import CONFIG_MAPPING

WINDOW = 8  # of the sliding ones: shorter than the texts that tests decode

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("llama", {}),
    "SmolLM": ("llama", {"tie_word_embeddings": True}),
    "Mistral": ("mistral", {"sliding_window": None}),
    "Mistral, sliding window": ("mistral", {"sliding_window": WINDOW}),
    "Qwen2, Qwen2.5": ("qwen2", {"tie_word_embeddings": True}),
    "Qwen2, sliding window": ("qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "Qwen3": ("qwen3", {"head_dim": 8}),
    "Gemma 2": ("gemma2", {
        "head_dim": 8, "sliding_window": WINDOW, "query_pre_attn_scalar": 8,
    }),
    "Gemma 3 (text)": ("gemma3_text", {
        "head_dim": 8, "sliding_window": WINDOW, "query_pre_attn_scalar": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    }),
    "Phi-3": ("phi3", {"sliding_window": None}),
    "Phi-3, sliding window": ("phi3", {"sliding_window": WINDOW}),
}  # fmt: skip


def tiny_model(
    architecture: str, seed: int = 0, vocab: int = 64, scale: float = 1.0, **changes: Any
) -> PreTrainedModel:
    """A random model of two layers in float32. `scale` sharpens its laws, so that they are far from flat."""
    kind, own = ARCHITECTURES[architecture]
    settings = {
        "vocab_size": vocab, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024,
        "initializer_range": 0.3, "eos_token_id": None, "bos_token_id": None, "pad_token_id": None,
        "tie_word_embeddings": False,
    }  # fmt: skip
    torch.manual_seed(seed)
    model: Any = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**(settings | own | changes)))
    norm = model.base_model.norm  # the head may be the embedding, so the states before it are scaled; Gemma adds one
    with torch.no_grad():
        norm.weight.fill_(
            (3.0 if model.config.tie_word_embeddings else 1.0) * scale - (1.0 if "gemma" in kind else 0.0)
        )
    return model.train(False)  # type: ignore[no-any-return]


def tiny_llama(seed: int = 0, layers: int = 2, vocab: int = 64, scale: float = 3.0, **changes: Any) -> PreTrainedModel:
    """A random Llama."""
    return tiny_model("Llama", seed, vocab, scale, num_hidden_layers=layers, **changes)


def disturbed(model: PreTrainedModel, amount: float = 0.5) -> PreTrainedModel:
    """A copy with noise on its weights: a draft that often agrees."""
    draft = copy.deepcopy(model)
    torch.manual_seed(7)
    with torch.no_grad():
        for weight in draft.parameters():
            if weight.dim() > 1:
                weight.add_(amount * weight.std() * torch.randn_like(weight))
    return draft
