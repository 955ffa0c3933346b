"""Passes of a few rows through packed Llama-shaped models, without what transformers does around the arithmetic.

A layer of a small model computes for one millisecond, and the modules around its products cost as much as half of
that again: norms and rotations of many operations, checks, keyword arguments. Here a layer is about twenty operations:
queries and keys are rotated together, the mask is added by the product that it belongs to. All else (prompts, other
architectures, devices, attention backends) goes through the model's own `forward`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM

from selector.engine.cache import PathCache, sliding_window
from selector.engine.cpu.packed_linear import PackedLinear, siblings
from selector.engine.language_model import Scores

SHAPED = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM)  # the same layers, with and without biases


def runs_directly(model: PreTrainedModel) -> bool:
    """Whether `model`, packed, has exactly the layers that `DirectPasses` computes.

    A sliding window is masked elsewhere, so it is refused here.
    """
    if type(model) not in SHAPED or getattr(model.config, "_attn_implementation", None) != "sdpa":
        return False
    if sliding_window(model.config, type(model).__name__) is not None:
        return False
    body: Any = model.model
    own = [body, body.norm, body.rotary_emb]
    for layer in body.layers:
        own += [layer, layer.self_attn, layer.mlp, layer.input_layernorm, layer.post_attention_layernorm]
    home = type(model).__module__
    if any({type(module).__module__, type(module).forward.__module__} != {home} for module in own):
        return False  # somebody's own layers
    if not all(siblings(layer.self_attn, "q_proj") and siblings(layer.mlp, "gate_proj") for layer in body.layers):
        return False
    shapes = {tuple(layer.self_attn.q_proj.packed.widths) for layer in body.layers}
    return len(shapes) == 1


class DirectPasses:
    """The forward pass of a packed model over masked rows, see `runs_directly`."""

    def __init__(self, model: Any) -> None:
        body = model.model
        self._embed, self._rotary, self._norm = body.embed_tokens, body.rotary_emb, body.norm
        self._layers = [_Layer(layer) for layer in body.layers]
        self._head = model.get_output_embeddings()

    @torch.inference_mode()
    def __call__(self, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: PathCache, last_rows: int) -> Scores:
        """See `Forward`; without a mask there is one row, which sees everything."""
        states = ids if ids.is_floating_point() else self._embed(ids)
        cos, sin = self._rotary(states, positions)
        half = sin.shape[-1] // 2
        turned = torch.cat([-sin[..., :half], sin[..., half:]], -1)  # so that a half turn needs no negation
        rotation = cos[:, :, None], turned[:, :, None]
        bias = states.new_zeros(1, 1, 1) if mask is None else self._layers[0].rows_of_groups(mask)
        for layer in self._layers:
            states = layer(states, rotation, bias, cache.layers[layer.place])
        hidden = _normed(self._norm, states[0, -last_rows:])
        return Scores(self._head(hidden), hidden)


class _Layer:
    """One decoder layer."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.place = int(attention.layer_idx)
        self._norms = layer.input_layernorm, layer.post_attention_layernorm
        self._qkv: PackedLinear = attention.q_proj.packed
        self._output, self._scale, self._width = attention.o_proj, attention.scaling, attention.head_dim
        self._gate_up: PackedLinear = mlp.gate_proj.packed
        self._activation, self._down = mlp.act_fn, mlp.down_proj
        ends = [end // self._width for end in torch.tensor(self._qkv.widths).cumsum(0).tolist()]
        self._heads, self._groups = ends[0], ends[1] - ends[0]
        self._queries, self._keys, self._values = (slice(*pair) for pair in pairwise([0, *ends]))

    def rows_of_groups(self, mask: Tensor) -> Tensor:
        """`[1, heads of a group * rows, cached]`: the mask of `_attend`'s rows, made once a pass."""
        return mask[0].expand(self._heads // self._groups, -1, -1).reshape(1, -1, mask.shape[-1])

    def __call__(self, states: Tensor, rotation: tuple[Tensor, Tensor], bias: Tensor, place: Any) -> Tensor:
        """`[1, rows, d] -> [1, rows, d]`; keys and values go to `place`, the layer's part of the cache."""
        states = states + self._output(self._attend(_normed(self._norms[0], states), rotation, bias, place))
        gate, up = self._gate_up(_normed(self._norms[1], states)).split(self._gate_up.widths, -1)
        result: Tensor = states + self._down(self._activation(gate) * up)
        return result

    def _attend(self, states: Tensor, rotation: tuple[Tensor, Tensor], bias: Tensor, place: Any) -> Tensor:
        """The heads of a group are rows of one product, so that the cache is read in place."""
        rows, (cos, sin) = states.shape[1], rotation
        heads = self._qkv(states).view(1, rows, -1, self._width)
        turned = heads[:, :, : self._keys.stop]
        turned = turned * cos + turned.roll(self._width // 2, -1) * sin
        queries = turned[:, :, self._queries].transpose(1, 2).reshape(self._groups, -1, self._width)
        keys, values = place.update(turned[:, :, self._keys].transpose(1, 2), heads[:, :, self._values].transpose(1, 2))
        weights = torch.baddbmm(bias, queries, keys[0].transpose(1, 2), alpha=self._scale)
        weights = torch.softmax(weights, -1, dtype=torch.float32).to(states.dtype)
        output = torch.bmm(weights, values[0]).view(self._heads, rows, -1)
        return output.transpose(0, 1).reshape(1, rows, -1)


def _normed(norm: nn.Module, states: Tensor) -> Tensor:
    """Root-mean-square norm: in float32, rounded, then weighted, as the model's own module does."""
    weight: Any = norm.weight
    epsilon: Any = norm.variance_epsilon
    result: Tensor = nn.functional.rms_norm(states.float(), weight.shape, None, epsilon).to(states.dtype) * weight
    return result
