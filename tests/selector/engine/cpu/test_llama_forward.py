"""Direct passes are the model's own passes, and are taken only where they are."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaMLP, LlamaRMSNorm

from selector.engine.causal_model import HuggingFaceModel
from selector.engine.cpu import cpu_forward
from selector.engine.cpu import packed_linear as packing
from selector.engine.cpu.llama_forward import runs_directly
from selector.engine.cpu.packed_linear import packed

SIZES: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 24, "pad_token_id": 0, "initializer_range": 0.2,
}  # fmt: skip
ROPE = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
TREES = ([-1], [-1, 0], [-1, 0, 0, 1, 1, 2, 5], [-1, -1, -1])


class RowOrder(packing.PackedLinear):
    """The same product where the CPU does not multiply packed weights of the type."""

    def __init__(self, layers: Any) -> None:
        nn.Module.__init__(self)
        self.weight = torch.cat([layer.weight.detach() for layer in layers])
        self.bias = None if layers[0].bias is None else torch.cat([layer.bias.detach() for layer in layers])
        self.widths = [layer.out_features for layer in layers]

    def forward(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, self.weight, self.bias)


def made(kind: str, **changes: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes = SIZES | changes
    models: dict[str, PreTrainedModel] = {
        "llama": LlamaForCausalLM(LlamaConfig(**sizes)),
        "biased": LlamaForCausalLM(LlamaConfig(**sizes, attention_bias=True, mlp_bias=True, hidden_act="gelu")),
        "ungrouped": LlamaForCausalLM(LlamaConfig(**(sizes | {"num_key_value_heads": 4}), rope_parameters=ROPE)),
        "mistral": MistralForCausalLM(MistralConfig(**sizes, sliding_window=None)),
        "qwen2": Qwen2ForCausalLM(Qwen2Config(**(sizes | {"head_dim": 16}), tie_word_embeddings=True)),
        "window": MistralForCausalLM(MistralConfig(**sizes, sliding_window=8)),
        "qwen2 window": Qwen2ForCausalLM(
            Qwen2Config(**(sizes | {"head_dim": 16}), use_sliding_window=True, sliding_window=8, max_window_layers=1)
        ),
        "qwen3": Qwen3ForCausalLM(Qwen3Config(**sizes)),
        "gemma2": Gemma2ForCausalLM(Gemma2Config(**sizes)),
    }
    model = models[kind]
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            nn.init.normal_(parameter, 1.0, 0.3)
    return model.eval()


def filled(model: PreTrainedModel, pack: bool) -> HuggingFaceModel:
    """With a context of 40 tokens."""
    engine = HuggingFaceModel(model, pack=pack)
    engine.extend(torch.arange(40), range(-1, 39), 1)
    engine.keep(range(40))
    return engine


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "biased", "ungrouped", "mistral", "qwen2"])
def test_trees_get_the_models_own_logits(kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """As near to the logits of the same weights in float64 as the model's own pass is."""
    monkeypatch.setattr(packing, "PackedLinear", RowOrder)
    monkeypatch.setattr("selector.engine.cpu.packing_pays", lambda _: True)
    model = made(kind).to(dtype)
    engines = [filled(model, pack=True), filled(model, pack=False), filled(deepcopy(model).double(), pack=False)]
    assert [getattr(engine._forward, "_direct", None) is not None for engine in engines] == [True, False, False]
    for parents in TREES:
        tokens = torch.arange(50, 50 + len(parents))
        for below, last_rows in ((parents, 0), ([0], 1)):  # a tree, then a row below its root
            ours, theirs, true = (engine.extend(tokens[: len(below)], below, last_rows) for engine in engines)
            for name in ("logits", "hidden"):
                results = [getattr(scores, name).double() for scores in (ours, theirs, true)]
                assert results[0].shape == results[1].shape
                noise = (results[1] - results[2]).abs().max()
                assert (results[0] - results[2]).abs().max() < 2.5 * noise + 1e-6
        for engine in engines:
            engine.keep([0])


@pytest.mark.parametrize("kind", ["window", "qwen2 window", "qwen3", "gemma2"])
def test_other_layers_go_the_models_own_way(kind: str) -> None:
    assert not runs_directly(packed(made(kind)))


def test_listeners_and_other_backends_go_the_models_own_way() -> None:
    assert runs_directly(packed(made("llama")))
    assert not runs_directly(made("llama"))
    heard = made("llama")
    heard.model.layers[1].register_forward_hook(lambda *_: None)
    assert cpu_forward(heard, pack=True) is None
    eager = made("llama")
    eager.set_attn_implementation("eager")
    assert not runs_directly(packed(eager))
    changed = made("llama")
    changed.model.layers[2].mlp.up_proj = nn.Identity()
    assert not runs_directly(packed(changed))


class OwnNorm(LlamaRMSNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        return super().forward(hidden_states) + hidden_states


class OwnLayer(LlamaDecoderLayer):
    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return 2 * super().forward(hidden_states, *args, **kwargs)


def own_norm(model: Any) -> None:
    model.model.norm = OwnNorm(64)


def own_layer(model: Any) -> None:
    model.model.layers[1] = OwnLayer(model.config, 1)


def own_forward(model: Any) -> None:
    layer = model.model.layers[0]
    original = layer.forward
    layer.forward = lambda hidden_states, **kwargs: -original(hidden_states, **kwargs)


def own_linear_forward(model: Any) -> None:
    layer = model.model.layers[0].self_attn.o_proj
    layer.forward = lambda states: 2 * nn.functional.linear(states, layer.weight)


def hook_on_a_linear_layer(model: Any) -> None:
    model.model.layers[1].mlp.down_proj.register_forward_hook(lambda _, inputs, output: 3 * output)


def swapped_layers(model: Any) -> None:
    model.model.layers[0], model.model.layers[2] = model.model.layers[2], model.model.layers[0]


def one_bias_of_three(model: Any) -> None:
    model.model.layers[0].self_attn.k_proj.bias = nn.Parameter(torch.randn(48))


@pytest.mark.parametrize(
    "change",
    [own_norm, own_layer, own_forward, own_linear_forward, hook_on_a_linear_layer, swapped_layers, one_bias_of_three],
)
def test_what_somebody_made_of_a_model_is_what_runs(change: Any) -> None:
    model: Any = made("llama")
    change(model)
    direct, own = filled(model, pack=True), filled(model, pack=False)
    for parents in TREES:
        tokens = torch.arange(50, 50 + len(parents))
        ours, theirs = (engine.extend(tokens, parents).logits for engine in (direct, own))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)
        for engine in (direct, own):
            engine.keep([0])


def test_a_class_with_another_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    original = LlamaMLP.forward
    monkeypatch.setattr(LlamaMLP, "forward", lambda self, states: -original(self, states))
    test_what_somebody_made_of_a_model_is_what_runs(lambda _: None)
