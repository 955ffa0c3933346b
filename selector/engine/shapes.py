"""Shapes of models without their weights, and random models of so many layers of them.

Nothing of other layers is ever allocated, nor of the table of embeddings, from which a pass reads a few rows.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from selector.engine.early_exit import is_early_exit
from selector.engine.huggingface import DAMAGED, check_folder
from selector.errors import UserError, first_line
from selector.hub import find_model
from selector.shipped import find

EMBEDDED_ROWS = 256


@dataclass(frozen=True)
class Shape:
    """One model of a pair.

    Attributes:
        config: of the text model in its true depth.
        depths: the two numbers of layers to time.
    """

    config: Any
    depths: tuple[int, int]

    @property
    def depth(self) -> int:
        """The true number of layers."""
        return int(self.config.num_hidden_layers)


def read_shape(field: str, source: str, revision: str = "") -> Shape:
    """The shape of a model by hub id, folder, or path of its config.json; nothing else of it is read."""
    path = find(source)
    if is_early_exit(path):
        message = f"{field} is {source!r}, which is made of its target's layers and has no shape of its own: give"
        raise UserError(f"{message} a model with --pair.{field}.")
    if not path.is_file():
        check_folder(field, source)
    known = None if path.exists() else find_model(field, source, revision)
    try:
        config: Any = AutoConfig.from_pretrained(str(path), **(known.options if known else {}))
        text = config.get_text_config(decoder=True)
        return Shape(text, timed_depths(text))
    except UserError as error:
        raise UserError(f"{field} is {source!r}: {error}") from None
    except DAMAGED as error:
        raise UserError(f"{field} is {source!r}: its shape cannot be read ({first_line(error)}).") from None


def timed_depths(config: Any) -> tuple[int, int]:
    """Two numbers of layers to time: one period of the kinds of layers, and three.

    Raises UserError for layers of different sizes, and of kinds in no order that comes again.
    """
    depth = int(config.num_hidden_layers)
    kinds = getattr(config, "layer_types", None) or ["full"] * depth
    period = next(p for p in range(1, depth + 1) if all(a == b for a, b in zip(kinds, kinds[p:], strict=False)))
    one, two, whole = (_weights(config, layers) for layers in (period, 2 * period, depth))
    if period * (whole - one) != (depth - period) * (two - one) or 2 * period > depth > 2:
        raise UserError("its layers differ, so that their time cannot be extrapolated; give another model.")
    return period, 3 * period


def _weights(config: Any, layers: int) -> int:
    """How many parameters a model of so many layers has."""
    auto: Any = AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(with_depth(config, layers))
    return sum(weight.numel() for weight in model.parameters())


def with_depth(config: Any, layers: int) -> Any:
    """The configuration with so many layers and a head of its own; lists with an entry a layer are cut or repeated."""
    scaled, depth = copy.deepcopy(config), int(config.num_hidden_layers)
    for name, value in vars(config).items():
        if isinstance(value, list) and len(value) == depth:
            setattr(scaled, name, [value[place % depth] for place in range(layers)])
    scaled.num_hidden_layers, scaled.tie_word_embeddings = layers, False
    return scaled


class SharedRows(nn.Embedding):
    """An embedding whose tokens share a few rows: reading one takes as long, and the table no gigabytes."""

    def __init__(self, tokens: int, width: int, dtype: torch.dtype) -> None:
        super().__init__(EMBEDDED_ROWS, width, dtype=dtype)
        self.num_embeddings = tokens

    def forward(self, ids: Tensor) -> Tensor:
        """`[.., rows] -> [.., rows, width]`."""
        return super().forward(ids % EMBEDDED_ROWS)


def random_model(
    config: Any, layers: int, tokens: int, dtype: torch.dtype, device: torch.device, attention: str
) -> PreTrainedModel:
    """A random model with so many layers of the shape `config`, over a vocabulary of so many `tokens`.

    `attention` is its implementation, or `auto`.
    """
    options = {} if attention == "auto" else {"attn_implementation": attention}
    auto: Any = AutoModelForCausalLM
    with torch.device("meta"):
        scaled = with_depth(config, layers)
        scaled.vocab_size = tokens
        model = auto.from_config(scaled, dtype=dtype, **options)
        model.set_input_embeddings(SharedRows(tokens, config.hidden_size, dtype))
    model.to_empty(device=device)
    model.init_weights()
    found: PreTrainedModel = model.eval()
    return found
