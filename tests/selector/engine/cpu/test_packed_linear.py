"""Packed weights give the same passes, and leave the model that they were made from alone."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM

from selector.engine.causal_model import HuggingFaceModel
from selector.engine.cpu.packed_linear import PackedLinear, packed, packing_pays

SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0,
}  # fmt: skip
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.02}


def model(kind: str, dtype: torch.dtype):
    torch.manual_seed(0)
    if kind == "qwen":  # biases, and a head of its own
        made = Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=False))
        for name, parameter in made.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(parameter)
    elif kind == "phi":  # its layers are merged already
        made = Phi3ForCausalLM(Phi3Config(**SIZES))
    else:
        made = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True))
    return made.to(dtype)


DTYPES = [
    pytest.param(dtype, marks=pytest.mark.skipif(not packing_pays(model("llama", dtype)), reason="not on this CPU"))
    for dtype in TOLERANCE
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["llama", "qwen", "phi"])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_same_passes(kind: str, rows: int, dtype: torch.dtype) -> None:
    original = model(kind, dtype)
    twin = packed(original)
    with torch.inference_mode():
        for _ in range(2):  # the second pass has other states, perhaps at the same place in memory
            ids = torch.randint(0, 96, (1, rows))
            torch.testing.assert_close(twin(ids).logits, original(ids).logits, rtol=0, atol=TOLERANCE[dtype])


def test_layers_on_one_input_are_one_product() -> None:
    kernels = [layer for layer in packed(model("llama", torch.float32)).modules() if isinstance(layer, PackedLinear)]
    assert sorted({len(layer.widths) for layer in kernels}) == [1, 2, 3]
    assert len(set(kernels)) == 2 * 4 + 1  # qkv, output, gate and up, down; and the head


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_model_itself_keeps_its_layers_and_shares_nothing(dtype: torch.dtype) -> None:
    original = model("llama", dtype)
    before = {name: tensor.clone() for name, tensor in original.state_dict().items()}
    twin = packed(original)
    assert not [layer for layer in original.modules() if isinstance(layer, PackedLinear)]
    assert not [layer for layer in twin.modules() if type(layer) is torch.nn.Linear]
    own = {tensor.data_ptr() for tensor in (*original.parameters(), *original.buffers())}
    assert not own & {tensor.data_ptr() for tensor in (*twin.parameters(), *twin.buffers())}
    assert all(torch.equal(before[name], tensor) for name, tensor in original.state_dict().items())


@pytest.mark.parametrize("dtype", DTYPES)
def test_passes_of_the_engine_use_it_and_its_fingerprint_does_not(dtype: torch.dtype) -> None:
    original = model("llama", dtype)
    engine = HuggingFaceModel(original)
    assert engine.snapshot
    assert engine.model is original
    assert engine.fingerprint == HuggingFaceModel(model("llama", dtype)).fingerprint


def test_types_that_are_not_multiplied_are_not_packed() -> None:
    assert packing_pays(model("llama", torch.float32))
    assert not packing_pays(model("llama", torch.float16))
