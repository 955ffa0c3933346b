"""Models of every kind: decoded exactly, or refused in one sentence when they are loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto import CONFIG_MAPPING

from selector.decoding.decoder import Decoder
from selector.engine.causal_model import HuggingFaceModel
from selector.errors import UserError
from tests.support.tiny_models import ARCHITECTURES, disturbed, tiny_model

LLAMA = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
BLOOM = {"hidden_size": 32, "n_layer": 2, "n_head": 4}
UNFIT: dict[str, tuple[str, dict[str, Any]]] = {
    "recurrent, RWKV": ("rwkv", {
        "hidden_size": 32, "attention_hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "context_length": 128,
    }),
    "recurrent, Mamba": ("mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 4}),
    "recurrent and attention": ("recurrent_gemma", {
        **LLAMA, "lru_width": 32, "head_dim": 8, "attention_window_size": 16, "block_types": ["recurrent", "attention"],
    }),
    "positions of the mask, Bloom": ("bloom", BLOOM),
    "positions of the mask, MPT": ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 128}),
    "positions of the mask, Falcon": ("falcon", {**LLAMA, "alibi": True, "new_decoder_architecture": False}),
    "no cache": ("openai-gpt", GPT),
    "rows that see later rows": ("bert", {**LLAMA, "is_decoder": False}),
}  # fmt: skip
FIT: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT-2": ("gpt2", GPT),
    "GPT-J": ("gptj", GPT | {"rotary_dim": 4}),
    "GPT-NeoX": ("gpt_neox", LLAMA),
    "Falcon": ("falcon", {**LLAMA, "alibi": False, "new_decoder_architecture": False}),
    "Phi": ("phi", LLAMA),
    "StableLM": ("stablelm", LLAMA),
    "Cohere": ("cohere", LLAMA),
    "OLMo 2": ("olmo2", LLAMA),
    "Mixtral": ("mixtral", {**LLAMA, "num_local_experts": 4}),
    "OPT": ("opt", {**LLAMA, "ffn_dim": 48, "word_embed_proj_dim": 32}),
}
DTYPES = ["float32", "float16", "float64"]


def random_model(kind: str, settings: dict[str, Any], dtype: str) -> PreTrainedModel:
    torch.manual_seed(0)
    tokens = {"eos_token_id": None, "bos_token_id": None, "pad_token_id": None}
    model: Any = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](vocab_size=64, **settings, **tokens))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.3)
    return model.to(getattr(torch, dtype)).train(False)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str, dtype: str) -> None:
    model = random_model(*UNFIT[name], dtype)
    with pytest.raises(UserError, match=r"^model '\w+' (does not fit|has a) .*: take "):
        HuggingFaceModel(model)


def texts(model: Any, draft: Any, prompt: list[int], count: int) -> tuple[list[int], list[int]]:
    pair: Any = SimpleNamespace(target=HuggingFaceModel(model), draft=HuggingFaceModel(draft), end_ids=(), decode=str)
    found = Decoder(pair, "traversal", (2, 1, 2)).generate(prompt, count).tokens
    plain = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False)
    return found, plain[0, len(prompt) :].tolist()


@pytest.mark.parametrize("name", FIT)
def test_what_fits_gets_its_own_text(name: str) -> None:
    model = random_model(*FIT[name], "float32")
    found, plain = texts(model, disturbed(model, 0.1), [3, 4, 5], 20)
    assert found == plain


@pytest.mark.parametrize("name", [*FIT, *ARCHITECTURES])
def test_what_fits_is_loaded_in_half_precision(name: str) -> None:
    model = random_model(*FIT[name], "float16") if name in FIT else tiny_model(name).to(torch.float16)
    HuggingFaceModel(model)


LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "rope_theta": 10000.0}
ORIGINAL = {"original_max_position_embeddings": 32}


@pytest.mark.parametrize("prompt", [5, 20, 31, 32, 33, 40])
@pytest.mark.parametrize("kind", ["phi3", "llama"])
def test_rotations_that_change_with_the_length(kind: str, prompt: int) -> None:
    """Texts within the first rotations are right, those that could reach the others are refused."""
    own = (
        {"rope_parameters": dict(LONGROPE), **ORIGINAL} if kind == "phi3" else {"rope_parameters": LONGROPE | ORIGINAL}
    )
    model = random_model(kind, LLAMA | own, "float64")
    draft, ids = disturbed(model, 0.05), list(range(3, 3 + prompt))
    if prompt < 32:
        found, plain = texts(model, draft, ids, 32 - prompt)
        assert found == plain
    with pytest.raises(UserError, match="the target holds 32 tokens in all"):
        texts(model, draft, ids, 33)
