"""Reference passes: transformers' own forward and cache, nothing of the engine."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from selector.engine.causal_model import HuggingFaceModel

Runs = Sequence[Sequence[int]]


@torch.inference_mode()
def logits_of(model: HuggingFaceModel, groups: Runs) -> Tensor:
    """`[rows, columns]`, float32: logits after each token of all `groups`, which are run in one pass a group."""
    plain: Any = model.model
    name = "cache" if "cache" in inspect.signature(type(plain).forward).parameters else "past_key_values"
    cache = DynamicCache(config=plain.config)
    rows = [
        plain(torch.tensor([list(group)], device=model.device), use_cache=True, **{name: cache}).logits[0]
        for group in groups
        if group
    ]
    columns = model.vocab_size if model.support is None else len(model.support)
    return torch.cat(rows)[:, :columns].float()


def one_by_one(model: HuggingFaceModel, context: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """`[tokens, columns]`: logits after each of `tokens`, run one at a time behind a context of one pass."""
    return logits_of(model, [context, *([token] for token in tokens)])[len(context) :]
