"""One forward pass of a transformers model: logits, and the hidden states that its output head reads."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from selector.engine.language_model import Scores


class Forward(Protocol):
    """Passes of a model over one sequence.

    `ids`, `positions`: `[1, rows]`; in place of the ids their embeddings `[1, rows, d]`; `mask`: additive
    `[1, 1, rows, cached + rows]`, one for each kind of layers, or None for one row that sees everything and for a
    prompt; `last_rows`: rows to return scores of, 0 for all.

    Attributes:
        snapshot: whether they run a copy of the weights.
    """

    snapshot: bool

    def __call__(self, ids: Tensor, mask: Any, positions: Tensor, cache: Any, last_rows: int) -> Scores:
        """Scores of the new rows, over the model's own columns; their keys and values are in `cache`."""
        ...


class OwnForward:
    """The model's own `forward`, with whatever hooks and adapters it has at the time of the call."""

    snapshot = False

    def __init__(self, model: Any) -> None:
        self.model = model
        self._modules: list[nn.Module] = list(model.modules())
        parameters = inspect.signature(type(model).forward).parameters
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        self._counts_rows = "logits_to_keep" in parameters

    @torch.inference_mode()
    def __call__(self, ids: Tensor, mask: Any, positions: Tensor | None, cache: Any, last_rows: int) -> Scores:
        """See `Forward`. Without `mask` and `positions` it is the pass that a user of the model would make."""
        given = {"attention_mask": mask, "position_ids": positions, self._cache_argument: cache}
        if self._counts_rows:
            given["logits_to_keep"] = last_rows
        given = {name: value for name, value in given.items() if value is not None}
        with evaluating(self._modules), _head_inputs(self.model) as captured:
            name = "inputs_embeds" if ids.is_floating_point() else "input_ids"
            output = self.model(**{name: ids}, use_cache=True, **given)
        return Scores(output.logits[0, -last_rows:], captured[0][0, -last_rows:].to(ids.device))


@contextmanager
def evaluating(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Evaluation mode inside, and each module's own mode after it."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _head_inputs(model: Any) -> Iterator[list[Tensor]]:
    """Collects what the output head reads in this thread, so that the model's own head stays in charge."""
    captured: list[Tensor] = []
    thread = get_ident()

    def capture(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        if get_ident() == thread:
            captured.append(arguments[0])

    handle = model.get_output_embeddings().register_forward_pre_hook(capture)
    try:
        yield captured
    finally:
        handle.remove()
