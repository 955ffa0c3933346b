"""Linear layers whose weights lie as oneDNN reads them, for models on a CPU.

Eager torch hands its matrix library a weight in row order, which the kernel brings into blocks in every pass. For the
few rows of a decoding step that costs as much as the product itself: weights packed once make a layer of up to 16
rows about one and a half to three times faster. Layers that read the same input (queries, keys and values; gate and
up) are packed as one, so that each pass starts fewer kernels.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

ROWS = 8  # the packing is chosen for passes of about so many rows, and serves all
SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # as transformers names them


class PackedLinear(nn.Module):
    """One `nn.Linear`, or several on the same input, of a packed copy of the weights."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        weight = torch.cat([layer.weight.detach() for layer in layers])
        self.weight: Any = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        self.bias = None if layers[0].bias is None else torch.cat([layer.bias.detach() for layer in layers])
        self.widths = [len(layer.weight) for layer in layers]

    def forward(self, states: Tensor) -> Tensor:
        """`[.., inputs] -> [.., outputs]`, those of several layers side by side."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, "none", [], "")
        return output


class _Sibling(nn.Module):
    """The outputs of one layer of several. The first that is called with an input computes them for all."""

    def __init__(self, packed: PackedLinear, place: int, computed: dict[str, Any]) -> None:
        super().__init__()
        self.packed, self.place, self.computed = packed, place, computed

    def forward(self, states: Tensor) -> Tensor:
        """`[.., inputs] -> [.., outputs]`."""
        if self.computed.get("states") is not states:
            self.computed.update(states=states, outputs=self.packed(states).split(self.packed.widths, -1))
        output: Tensor = self.computed["outputs"][self.place]
        if self.place == len(self.packed.widths) - 1:
            self.computed.clear()  # a tensor of the same identity could hold something else in the next pass
        return output


def siblings(parent: nn.Module, first: str) -> bool:
    """Whether the layer `first` of `parent` and those on the same input are one product."""
    return isinstance(getattr(parent, first, None), _Sibling)


def packing_pays(model: PreTrainedModel) -> bool:
    """Whether the model runs on a CPU in a type that oneDNN multiplies there, and the packed copies fit into memory."""
    places = {parameter.device.type for parameter in model.parameters()}  # accelerate may have put some elsewhere
    if places != {"cpu"} or hasattr(model, "hf_device_map") or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    native = model.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if model.dtype != torch.float32 and not native:
        return False
    layers = [layer for layer in model.modules() if type(layer) is nn.Linear]
    needed = sum(layer.weight.numel() * layer.weight.element_size() for layer in layers)
    return bool(needed < psutil.virtual_memory().available // 2)


@torch.inference_mode()
def packed(model: PreTrainedModel) -> PreTrainedModel:
    """A copy in evaluation mode with packed linear layers, which shares nothing with `model`."""
    linear, others = dict[int, Any](), set[int]()
    for module in model.modules():
        if type(module) is nn.Linear:
            linear |= {id(tensor): tensor for tensor in module.parameters()}
        else:
            others |= {id(tensor) for tensor in module.parameters(recurse=False)}
    packed_later: dict[int, Any] = {key: tensor for key, tensor in linear.items() if key not in others}
    twin: PreTrainedModel = copy.deepcopy(model, packed_later)  # these are not copied twice
    for parent in list(twin.modules()):
        layers = {name: layer for name, layer in parent.named_children() if type(layer) is nn.Linear}
        for group in SIBLINGS:
            if all(name in layers for name in group) and _fit([layers[name] for name in group]):
                _merge(parent, group, [layers.pop(name) for name in group])
        for name, layer in layers.items():
            setattr(parent, name, PackedLinear([layer]))
    twin.train(False)
    return twin


def _fit(layers: Sequence[nn.Linear]) -> bool:
    """Whether layers can be one product: all with a bias or none."""
    shapes = {(layer.bias is None, layer.in_features, layer.weight.dtype) for layer in layers}
    return len(shapes) == 1


def _merge(parent: nn.Module, names: Sequence[str], layers: Sequence[nn.Linear]) -> None:
    merged, computed = PackedLinear(layers), dict[str, Any]()
    for place, name in enumerate(names):
        setattr(parent, name, _Sibling(merged, place, computed))
