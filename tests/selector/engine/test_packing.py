"""Packed weights give the same bits, and leave the model that they were made from alone."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from selector.engine.causal_model import HuggingFaceModel
from selector.engine.packing import PackedLinear, packed, packing_pays

SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip


def model(kind: str, dtype: torch.dtype = torch.bfloat16):
    torch.manual_seed(0)
    if kind == "qwen":  # biases, and a head of its own
        made = Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=False))
        for name, parameter in made.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter)
    else:
        made = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True))
    return made.to(dtype)


packs = pytest.mark.skipif(not packing_pays(model("llama")), reason="this CPU does not multiply bfloat16")


@packs
@pytest.mark.parametrize("kind", ["llama", "qwen"])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_same_bits(kind: str, rows: int) -> None:
    original = model(kind)
    ids = torch.randint(0, 96, (1, rows))
    with torch.inference_mode():
        assert torch.equal(packed(original)(ids).logits, original(ids).logits)


@packs
def test_the_model_itself_keeps_its_layers_and_shares_the_rest() -> None:
    original = model("llama")
    before = {name: tensor.clone() for name, tensor in original.state_dict().items()}
    twin = packed(original)
    assert not [layer for layer in original.modules() if isinstance(layer, PackedLinear)]
    assert not [layer for layer in twin.modules() if type(layer) is torch.nn.Linear]
    assert twin.get_input_embeddings().weight is original.get_input_embeddings().weight
    assert all(torch.equal(before[name], tensor) for name, tensor in original.state_dict().items())


@packs
def test_passes_of_the_engine_use_it_and_its_fingerprint_does_not() -> None:
    original = model("llama")
    engine = HuggingFaceModel(original)
    assert [layer for layer in engine._passes.modules() if isinstance(layer, PackedLinear)]
    assert engine.model is original
    assert engine.fingerprint == HuggingFaceModel(model("llama")).fingerprint


def test_only_bfloat16_is_packed() -> None:
    assert not packing_pays(model("llama", torch.float32))
    assert not packing_pays(model("llama", torch.float16))
