"""Passes of a target over many left-padded rows at once."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from data_gen.distillation.batch_cache import BLOCK, BatchCache
from selector.engine.cache import sliding_window
from selector.engine.cpu import cpu_batches


class BatchPasses:
    """Passes of a target over a batch of left-padded rows that keeps its keys and values."""

    def __init__(self, model: PreTrainedModel) -> None:
        copied, self._attention = cpu_batches(model)
        self.model: Any = copied
        name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        self._window = sliding_window(model.config, name)
        self._mixed = getattr(model.config.get_text_config(decoder=True), "layer_types", None) is not None
        parameters = inspect.signature(type(model).forward).parameters
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"

    def start(self, mask: Tensor, new_tokens: int) -> None:
        """Begin with rows whose prompts are True in `mask [batch, width]`, for so many more; nothing has run yet."""
        width = mask.shape[1]
        layers = self.model.config.get_text_config(decoder=True).num_hidden_layers
        self.cache = BatchCache(layers, width, width + new_tokens)
        self._filled = nn.functional.pad(mask.bool(), (0, self.cache.columns - width))
        self._positions = (mask.long().cumsum(-1) - 1).clamp(min=0)

    def keep(self, rows: Tensor | None) -> None:
        """Make room for more columns and drop all rows but `rows`."""
        self.cache.reserve(rows)
        if rows is not None:
            self._filled, self._positions = self._filled[rows], self._positions[rows]
        self._filled = nn.functional.pad(self._filled, (0, BLOCK))

    @torch.inference_mode()
    def run(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Run `ids [rows, new]`; returns the last column's logits `[rows, vocab]`, `hidden [rows, new, d]`."""
        start, new = self.cache.length, ids.shape[1]
        if start:
            self._filled[:, start] = True
            self._positions = self._positions[:, -1:] + 1
        hidden: list[Tensor] = []
        handle = self.model.base_model.register_forward_hook(
            lambda _, arguments, output: hidden.append(output.last_hidden_state)
        )
        try:
            with self._attention():
                logits: Tensor = self.model(
                    input_ids=ids, attention_mask=self._masks(start, new), position_ids=self._positions,
                    use_cache=True, logits_to_keep=1, **{self._cache_argument: self.cache},
                ).logits  # fmt: skip
        finally:
            handle.remove()
        self.cache.length += new
        return logits[:, -1], hidden[0]

    def _masks(self, start: int, new: int) -> Any:
        """Additive `[rows, 1, new, columns]`; one of each kind for a model with layers of two kinds."""
        column = torch.arange(self.cache.columns, device=self._filled.device)
        distance = column[start : start + new, None] - column
        seen = self._filled[:, None, None] & (distance >= 0)
        full = self._additive(seen)
        if self._window is None:
            return full
        near = self._additive(seen & (distance < self._window))
        return {"full_attention": full, "sliding_attention": near} if self._mixed else near

    def _additive(self, seen: Tensor) -> Tensor:
        """A finite penalty: a padded row sees nothing, and must stay a number."""
        dtype = self.model.dtype
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, torch.finfo(dtype).min)
