"""Faster passes on a CPU. `cpu_forward` (a few rows of one text) and `cpu_batches` (many texts) are the doors here.

What makes them faster: weights packed once (`packed_linear`), a layer of few operations (`llama_forward`), and
attention that reads the cache in place (`grouped_attention`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all
from transformers import PreTrainedModel

from selector.engine.cpu.grouped_attention import grouped_rows, switchable_configs
from selector.engine.cpu.llama_forward import DirectPasses, runs_directly
from selector.engine.cpu.packed_linear import packed, packing_pays
from selector.engine.forward import Forward, OwnForward
from selector.engine.language_model import Scores

__all__ = ["cpu_batches", "cpu_forward"]


def cpu_forward(model: PreTrainedModel, pack: bool) -> Forward | None:
    """Faster passes of a model on a CPU; None where the model's own are the only right ones.

    Those are wanted where somebody listens to a module or has given it a `forward` of its own, as accelerate's mixed
    precision does. With `pack` a copy of the weights is taken where that pays: the passes are those of the present
    model, whatever becomes of it.
    """
    if model.device.type != "cpu" or not all(map(_untouched, model.modules())) or _hooks_of_all():
        return None
    return _CpuForward(model, pack and packing_pays(model))


def cpu_batches(model: PreTrainedModel) -> tuple[PreTrainedModel, Callable[[], AbstractContextManager[None]]]:
    """A model for passes over many texts side by side, and the context in which its attention reads their cache.

    It is a packed copy where that pays, else `model` itself, on any device.
    """
    copied = packed(model) if packing_pays(model) else model
    return copied, partial(grouped_rows, switchable_configs(copied))


def _untouched(module: nn.Module) -> bool:
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)


def _hooks_of_all() -> bool:
    return bool(hooks_of_all._global_forward_hooks or hooks_of_all._global_forward_pre_hooks)


class _CpuForward:
    def __init__(self, model: PreTrainedModel, pack: bool) -> None:
        self.snapshot = pack
        self._own = OwnForward(model)
        self._passes = OwnForward(packed(model)) if pack else self._own
        self._direct = DirectPasses(self._passes.model) if pack and runs_directly(self._passes.model) else None
        self._configs = switchable_configs(self._passes.model)

    def __call__(self, ids: Tensor, mask: Any, positions: Tensor, cache: Any, last_rows: int) -> Scores:
        """See `Forward`."""
        if torch.is_autocast_enabled("cpu"):  # packed products know nothing of it
            return self._own(ids, mask, positions, cache, last_rows)
        if mask is None and ids.shape[1] > 1:
            return self._passes(ids, mask, positions, cache, last_rows)
        if self._direct is not None:
            return self._direct(ids, mask, positions, cache, last_rows)
        with grouped_rows(self._configs):
            return self._passes(ids, mask, positions, cache, last_rows)
