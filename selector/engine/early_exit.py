"""An early-exit draft: a few of the target's layers between its own embedding and a reduced copy of its head.

Only what differs from the target is stored: the trained layers (matrices as 8-bit integers with a scale a row, a
quarter of float32's size), the final norm, and the ids of the head's tokens. A head over the target's most
frequent tokens makes a draft pass several times cheaper; the draft's law is zero on all other tokens, which costs
acceptance and never the target's law.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from selector.artifacts.loading import load_tensors
from selector.artifacts.writing import atomic_write, write_json
from selector.errors import UserError, first_line

SCHEMA = 1
KIND = "early_exit"
READS = ("tokens", "target")
SCALE = ".scale"


def build_early_exit(
    target: PreTrainedModel, layers: list[int], head_tokens: Tensor | None, reads: str = "tokens"
) -> PreTrainedModel:
    """A causal LM of the target's class with copies of `layers` and the head's rows of `head_tokens`.

    One that `reads` the `target` gets a `fuse` in its base model, see `Fuse`.

    The embedding is the target's own parameter. `head_tokens [columns]`: ids in ascending order, or None for
    the whole head. Raises UserError when a layer does not exist.
    """
    count = target.config.num_hidden_layers
    if not layers or any(not 0 <= layer < count for layer in layers):
        raise UserError(f"layers is {layers}: name one or more of the target's layers 0 to {count - 1}.")
    config = copy.deepcopy(target.config)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [target.config.layer_types[layer] for layer in layers]
    with torch.device("meta"):
        draft = type(target)(config)
    base: Any = draft.base_model
    source: Any = target.base_model
    base.embed_tokens = source.embed_tokens
    base.rotary_emb = source.rotary_emb
    base.norm = copy.deepcopy(source.norm)
    for position, layer in enumerate(layers):
        copied = copy.deepcopy(source.layers[layer])
        copied.self_attn.layer_idx = position
        base.layers[position] = copied
    draft.lm_head = _reduced_head(target, head_tokens)
    if reads == "target":
        base.fuse = Fuse(base.embed_tokens.weight)
    return draft


class Fuse(nn.Module):
    """The first layer's input of a draft that reads the target: a token's embedding and the hidden state before it.

    After EAGLE (arXiv 2401.15077, section 4): one `2d -> d` matrix. It starts as the embedding alone, so that a draft
    begins as one that reads tokens; states are brought to the embedding's size, so that one learning rate suits both.
    """

    def __init__(self, embedding: Tensor) -> None:
        """`embedding [vocab, d]`: the weight of the target's embedding."""
        super().__init__()
        one = torch.eye(embedding.shape[1], dtype=embedding.dtype, device=embedding.device)
        self.weight = nn.Parameter(torch.cat([one, torch.zeros_like(one)], 1))
        self.size = float(embedding.detach().float().pow(2).mean().sqrt())

    def forward(self, embedded: Tensor, states: Tensor) -> Tensor:
        """`embedded`, `states [.., d] -> [.., d]`."""
        sized = nn.functional.rms_norm(states.to(embedded.dtype), states.shape[-1:]) * self.size
        return nn.functional.linear(torch.cat([embedded, sized], -1), self.weight)


def reads_target(draft: PreTrainedModel) -> bool:
    """Whether a draft reads the target's hidden states."""
    return hasattr(draft.base_model, "fuse")


def _reduced_head(target: PreTrainedModel, head_tokens: Tensor | None) -> nn.Module:
    head: nn.Linear = target.lm_head
    if head_tokens is None:
        return head
    rows = head.weight.detach()[head_tokens.to(head.weight.device)].clone()
    reduced = nn.Linear(rows.shape[1], rows.shape[0], bias=False, device="meta")
    reduced.weight = nn.Parameter(rows, requires_grad=False)
    return reduced


def trained_parameters(draft: PreTrainedModel) -> dict[str, nn.Parameter]:
    """What a draft folder stores: the layers and the final norm, by name."""
    base: Any = draft.base_model
    names = {f"layers.{name}": parameter for name, parameter in base.layers.named_parameters()}
    names |= {f"norm.{name}": parameter for name, parameter in base.norm.named_parameters()}
    return names | ({"fuse.weight": base.fuse.weight} if reads_target(draft) else {})


def save_draft(
    draft: PreTrainedModel, folder: Path, *, layers: list[int], head_tokens: Tensor | None, info: dict[str, Any]
) -> None:
    """Write `model.safetensors` and `config.json`; `info` goes into the config.

    Rounding costs no losslessness: the draft's law is whatever the loaded draft computes.
    """
    reads = "target" if reads_target(draft) else "tokens"
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    for name, parameter in trained_parameters(draft).items():
        tensors |= _pack(name, parameter.detach().float())
    if head_tokens is not None:
        tensors["head_tokens"] = head_tokens.to(torch.int32)
    with atomic_write(folder / "model.safetensors") as temporary:
        save_file(tensors, temporary)
    write_json(folder / "config.json", {"schema": SCHEMA, "kind": KIND, "layers": layers, "reads": reads} | info)


def _pack(name: str, value: Tensor) -> dict[str, Tensor]:
    """A matrix as int8 rows with their scales, anything else as it is."""
    if value.dim() != 2:
        return {name: value.contiguous()}
    scale = value.abs().amax(1).clamp(min=1e-12) / 127
    return {name: (value / scale[:, None]).round().to(torch.int8), f"{name}{SCALE}": scale}


def _unpack(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Inverse of `_pack` over all names, in float32."""
    scales = {name: value for name, value in tensors.items() if name.endswith(SCALE)}
    values = {name: value.float() for name, value in tensors.items() if name not in scales}
    return {
        name: value * scales[name + SCALE][:, None] if name + SCALE in scales else value
        for name, value in values.items()
    }


def is_early_exit(folder: Path) -> bool:
    """Whether a folder holds a draft that `save_draft` wrote."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("kind") == KIND


def load_draft(folder: Path, target: PreTrainedModel) -> tuple[PreTrainedModel, Tensor | None]:
    """`(draft, head_tokens)`, in the target's dtype and on its device.

    Raises UserError when the folder is damaged, its schema or shapes do not fit the target, or the target's layers
    lie on several devices.
    """
    places = set(getattr(target, "hf_device_map", {}).values())
    if len(places) > 1:
        raise UserError(
            f"draft {str(folder)!r} shares the target's layers, which lie on {len(places)} devices: "
            "take a model folder as draft, or put the target on one device."
        )
    config = json.loads((folder / "config.json").read_text())
    if config.get("schema") != SCHEMA:
        raise UserError(f"draft {str(folder)!r} has schema {config.get('schema')!r}, not {SCHEMA}: distill it again.")
    layers = config.get("layers")
    if not isinstance(layers, list) or any(type(layer) is not int for layer in layers):
        raise UserError(f"draft {str(folder)!r} has layers {layers!r} in config.json, not a list: distill it again.")
    reads = config.get("reads", "tokens")
    if reads not in READS:
        raise UserError(f"draft {str(folder)!r} reads {reads!r}, not one of {', '.join(READS)}: distill it again.")
    try:
        tensors = load_tensors(folder / "model.safetensors")
    except (OSError, SafetensorError, ValueError) as error:
        raise UserError(
            f"draft {str(folder)!r} has no usable model.safetensors ({first_line(error)}): distill it again."
        ) from None
    head_tokens = tensors.pop("head_tokens").long() if "head_tokens" in tensors else None
    if head_tokens is not None:
        _check_head_tokens(head_tokens, folder, target.config.vocab_size)
    tensors = _unpack(tensors)
    draft = build_early_exit(target, layers, head_tokens, reads)
    own = trained_parameters(draft)
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in tensors.items()}:
        raise UserError(
            f"draft {str(folder)!r} does not have the target's layer shapes: take the draft that was distilled from it."
        )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])
    draft.train(False)
    return draft, head_tokens


def start_from(draft: PreTrainedModel, folder: Path, target: PreTrainedModel) -> None:
    """Give a draft the weights of a stored one of the same layers; what that one lacks stays as it is.

    Raises UserError as `load_draft` does, and where the stored draft has other layers or weights that `draft` lacks.
    """
    stored, own = trained_parameters(load_draft(folder, target)[0]), trained_parameters(draft)
    layers = json.loads((folder / "config.json").read_text())["layers"]
    if any(name not in own or own[name].shape != value.shape for name, value in stored.items()):
        raise UserError(f"distill.start {str(folder)!r} has layers {layers} and other weights than the draft to make.")
    with torch.no_grad():
        for name, value in stored.items():
            own[name].copy_(value)


def _check_head_tokens(head_tokens: Tensor, folder: Path, vocab_size: int) -> None:
    """Each column of the head is one token: where two share it, one of them would lose its share of the law."""
    if head_tokens.dim() != 1 or not len(head_tokens) or head_tokens[0] < 0 or (head_tokens.diff() <= 0).any():
        raise UserError(f"draft {str(folder)!r} has head_tokens that repeat or do not ascend: distill it again.")
    if head_tokens[-1] >= vocab_size:
        raise UserError(
            f"draft {str(folder)!r} has token {int(head_tokens[-1])}, past the target's vocabulary of {vocab_size}: "
            "take the draft that was distilled from this target."
        )
