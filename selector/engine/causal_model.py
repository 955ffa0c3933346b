"""A transformers causal LM as a `LanguageModel`: tree passes over one cache, rolled back in place."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicCache

from selector.engine.attention import grouped_rows, switchable_configs
from selector.engine.cache import PathCache, check_cache
from selector.engine.language_model import Scores
from selector.errors import UserError

MASKED_BACKENDS = ("sdpa", "eager")  # attention implementations that honour a 4-D mask
FINGERPRINT_SAMPLES = 16


class HuggingFaceModel:
    """See `LanguageModel`. The wrapped model's own state and configuration are left as they are.

    Raises UserError for a cache that cannot be rolled back and for an attention backend without 4-D masks.
    """

    def __init__(
        self, model: PreTrainedModel, support: Tensor | None = None, tokenizer: PreTrainedTokenizerBase | None = None
    ) -> None:
        self.model: Any = model.train(False)
        self.tokenizer = tokenizer
        self.device = model.device
        name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        backend = getattr(model.config, "_attn_implementation", "eager")
        if backend not in MASKED_BACKENDS:
            message = f"attention backend is {backend!r} for model {name!r}, which ignores tree masks: load it with "
            raise UserError(message + "attn_implementation='sdpa'.")
        check_cache(model.config, name)
        self.vocab_size = int(self.model.get_input_embeddings().num_embeddings)
        self.max_length = max_positions(model)
        self.support = None if support is None else support.to(self.device)
        parameters = inspect.signature(type(model).forward).parameters
        self._configs = switchable_configs(model)
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        probe = DynamicCache()
        zero = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        scores = self._forward(zero, None, zero, probe, 1)
        self.hidden_size = scores.hidden.shape[1]
        columns = self.vocab_size if support is None else len(support)
        if scores.logits.shape[1] != columns:
            raise UserError(f"model {name!r} has {scores.logits.shape[1]} output tokens, not {columns}: not supported.")
        self._cache = PathCache(probe)
        self._pending = PendingRows()
        self._length = 0

    @property
    def length(self) -> int:
        """Number of committed rows."""
        return self._length

    @cached_property
    def fingerprint(self) -> str:
        """The same for float32 and bfloat16 weights of one model.

        Samples are rounded to bfloat16; after float16 that is a second rounding, which may change the hash.
        """
        digest = hashlib.sha256()
        volatile = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures"}
        config = {key: value for key, value in self.model.config.to_dict().items() if key not in volatile}
        digest.update(json.dumps(config, sort_keys=True, default=str).encode())
        for name, weight in sorted(self.model.named_parameters()):
            flat = weight.detach().reshape(-1)
            step = max(1, len(flat) // FINGERPRINT_SAMPLES)
            sample = flat[::step][: 2 * FINGERPRINT_SAMPLES].to(torch.bfloat16).float().cpu()
            digest.update(f"{name}{tuple(weight.shape)}".encode() + sample.numpy().tobytes())
        if self.support is not None:
            digest.update(self.support.cpu().numpy().tobytes())
        if self.tokenizer is not None:
            digest.update(json.dumps(sorted(self.tokenizer.get_vocab().items())).encode())
        return digest.hexdigest()[:16]

    def reset(self) -> None:
        """Forget the sequence; the buffers stay allocated."""
        self._cache.rows = self._length = 0
        self._pending = PendingRows()

    @torch.inference_mode()
    def extend(self, tokens: Tensor, parents: Sequence[int], last_rows: int = 0) -> Scores:
        """See `LanguageModel.extend`."""
        depths, visible = self._pending.append(parents)
        count, cached = len(parents), self._cache.rows
        positions = torch.tensor(depths, device=self.device).add_(self._length)
        if visible is not None:
            mask = self._mask(count, visible)
        elif count > 1 and cached > 0:
            mask = self._mask(count, np.tri(count, cached - self._length + count, cached - self._length, dtype=bool))
        else:
            mask = None  # one row that sees everything, or a prompt from an empty cache: plain causal attention
        self._cache.reserve(count)
        with grouped_rows(self._configs if mask is not None or count == 1 else ()):
            scores = self._forward(tokens.to(self.device)[None], mask, positions[None], self._cache, last_rows)
        self._cache.rows += count
        return scores

    @torch.inference_mode()
    def keep(self, path: Sequence[int]) -> None:
        """See `LanguageModel.keep`."""
        self._cache.keep(self._length, path)
        self._length += len(path)
        self._pending = PendingRows()

    def _mask(self, count: int, visible: np.ndarray[Any, np.dtype[np.bool_]]) -> Tensor:
        """Additive `[1, 1, count, length + pending]`: every row sees the committed context, and `visible`."""
        mask = np.zeros((1, 1, count, self._length + visible.shape[1]), dtype=np.float32)
        mask[0, 0, :, self._length :] = np.where(visible, 0.0, -np.inf)
        return torch.from_numpy(mask).to(self.device, self.model.dtype)

    @torch.inference_mode()
    def _forward(self, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: Any, last_rows: int) -> Scores:
        """One pass. The hidden states are the input of the output head, so the model's own head stays in charge."""
        captured: list[Tensor] = []
        handle = self.model.get_output_embeddings().register_forward_pre_hook(
            lambda _, arguments: captured.append(arguments[0])
        )
        try:
            output = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=last_rows,
                **{self._cache_argument: cache},
            )
        finally:
            handle.remove()
        return Scores(output.logits[0], captured[0][0])


def max_positions(model: PreTrainedModel) -> int | None:
    """Longest text of a model by its configuration; None where that names none."""
    config: Any = model.config.get_text_config(decoder=True)
    for name in ("max_position_embeddings", "n_positions"):
        limit = getattr(config, name, None)
        if isinstance(limit, int) and limit > 0:
            return limit
    return None


class PendingRows:
    """Depths and ancestors of the rows since the last `keep`.

    As long as every row follows the row before it nothing is stored but their number.
    """

    def __init__(self) -> None:
        self.depths: list[int] = []
        self._visible: np.ndarray[Any, np.dtype[np.bool_]] | None = None

    def append(self, parents: Sequence[int]) -> tuple[list[int], np.ndarray[Any, np.dtype[np.bool_]] | None]:
        """Depths of the new rows, and `visible [new, pending]` (self included), None for a chain."""
        start, count = len(self.depths), len(parents)
        if self._visible is None and list(parents) == list(range(start - 1, start + count - 1)):
            depths = list(range(start, start + count))
            self.depths += depths
            return depths, None
        visible = self._grown(start, start + count)
        for row, parent in enumerate(parents, start):
            if parent >= 0:
                visible[row, : parent + 1] = visible[parent, : parent + 1]
            visible[row, row] = True
            self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
        return self.depths[start:], visible[start : start + count, : start + count]

    def _grown(self, rows: int, needed: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if self._visible is None or len(self._visible) < needed:
            grown = np.zeros((2 * needed, 2 * needed), dtype=bool)
            grown[:rows, :rows] = np.tri(rows, dtype=bool) if self._visible is None else self._visible[:rows, :rows]
            self._visible = grown
        return self._visible
