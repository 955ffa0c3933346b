"""A transformers causal LM as a `LanguageModel`: tree passes over one cache, rolled back in place."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from selector.engine.cache import PathCache, sliding_window
from selector.engine.cpu import cpu_forward
from selector.engine.forward import OwnForward
from selector.engine.language_model import Scores
from selector.engine.probe import check_trees, probe
from selector.engine.tree_mask import PendingRows, Visible, windowed
from selector.errors import UserError

MASKED_BACKENDS = ("sdpa", "eager")  # attention implementations that honour a 4-D mask
FINGERPRINT_SAMPLES = 16
STEADY_ROTATIONS = ("default", "linear", "dynamic", "llama3", "proportional", "yarn")  # the same at every length
ORIGINAL = "original_max_position_embeddings"
PASSES = RLock()  # threads take turns: a pass sets modes and attention of modules that models may share


class HuggingFaceModel:
    """See `LanguageModel`. The wrapped model's own state and configuration are left as they are.

    Layers with a sliding window keep all rows, so that any path can be kept; their masks hold the window.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        support: Tensor | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        vocab_size: int | None = None,
        pack: bool = True,
    ) -> None:
        """`support`: the tokens of a reduced head. `vocab_size`: that of the pair, where a draft's is padded otherwise.
        `pack`: run a packed copy of the weights where that pays (`snapshot` tells), until the next `refresh`.

        Columns past `vocab_size` are cut; where the model has fewer, they are its support. Raises UserError for a
        model that tree passes do not fit, see `probe`.
        """
        self.model: Any = model
        self.tokenizer = tokenizer
        embeddings: Any = model.get_input_embeddings()
        self.rows = int(embeddings.num_embeddings)
        self._head_columns = self.rows if support is None else len(support)
        self.vocab_size = vocab_size or self.rows
        if support is None and self.rows < self.vocab_size:
            support = torch.arange(self.rows)
        self.support = support
        self.max_length = max_positions(model)
        self._pack = pack
        self.refresh()

    def refresh(self) -> None:
        """Take the model as it is now: its weights, modules, hooks, device and dtype. The sequence is forgotten."""
        # none in another thread may have switched the model's attention meanwhile; the cache gets the model's own dtype
        with PASSES, torch.autocast(self.model.device.type, enabled=False):
            self._take(self.model, self._name)

    def _take(self, model: PreTrainedModel, name: str) -> None:
        self.dtype, self._backend = model.dtype, self._live_backend
        if self._backend not in MASKED_BACKENDS:
            message = f"attention backend is {self._backend!r} for model {name!r}, which ignores tree masks: load it "
            raise UserError(message + "with attn_implementation='sdpa'.")
        self.device = model.device
        self.support = None if self.support is None else self.support.to(self.device)
        self._window = sliding_window(model.config, name)
        self._mixed = getattr(model.config.get_text_config(decoder=True), "layer_types", None) is not None
        self.__dict__.pop("fingerprint", None)
        self._forward = cpu_forward(model, self._pack) or OwnForward(model)
        scores, self._probe = probe(model, name)
        self.hidden_size = scores.hidden.shape[1]
        found = scores.logits.shape[1]
        if found != self._head_columns:
            raise UserError(f"model {name!r} has {found} output tokens, not {self._head_columns}: not supported.")
        self._begin()
        check_trees(self, scores, name)

    @property
    def snapshot(self) -> bool:
        """Whether passes run a copy of the weights, which later changes of the model do not reach."""
        return self._forward.snapshot

    @property
    def _name(self) -> str:
        return str(getattr(self.model.config, "_name_or_path", "") or type(self.model).__name__)

    @property
    def _live_backend(self) -> str:
        return getattr(self.model.config, "_attn_implementation", None) or "eager"

    def _check_live(self) -> None:
        """Raises UserError where passes run the user's model, and it has another dtype or attention by now."""
        if self.snapshot and not torch.is_autocast_enabled("cpu"):
            return
        with PASSES:
            taken, now = (self.dtype, self._backend), (self.model.dtype, self._live_backend)
        if taken != now:
            change = " and ".join(f"{old} is now {new}" for old, new in zip(taken, now, strict=True) if old != new)
            raise UserError(f"model {self._name!r} has changed ({change}): call refresh() of its decoder.")

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

    def _begin(self) -> None:
        """An empty sequence, with buffers of its own."""
        self._cache, self._length = PathCache(self._probe), 0
        self._forget()

    def fresh(self) -> HuggingFaceModel:
        """See `LanguageModel.fresh`. Raises UserError where the model has changed so that `refresh` must come first."""
        self._check_live()
        other = copy.copy(self)
        other._begin()
        return other

    def reset(self) -> None:
        """Forget the sequence; the buffers stay allocated."""
        self._cache.rows = self._length = 0
        self._forget()

    def _forget(self) -> None:
        """No rows are pending any more."""
        self._pending = PendingRows()

    def _inputs(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        """What the first layer's embedding reads: ids `[rows]`, or its result `[rows, d]` in its place."""
        ids = tokens.to(self.device)
        if self.rows < self.vocab_size:
            ids = ids.clamp(max=self.rows - 1)  # a padded token of the target, which this draft does not have
        return ids

    @torch.inference_mode()
    def extend(self, tokens: Tensor, parents: Sequence[int], last_rows: int = 0) -> Scores:
        """See `LanguageModel.extend`."""
        depths, visible = self._pending.append(parents)
        count, cached = len(parents), self._cache.rows
        positions = torch.tensor(depths, device=self.device).add_(self._length)
        mask: Any = None  # one row that sees everything, or a prompt from an empty cache: the model's own mask
        if visible is not None:
            mask = self._mask(count, visible, self._pending.depths)
        elif cached > 0 and (count > 1 or self._window is not None):
            chain = np.tri(count, cached - self._length + count, cached - self._length, dtype=bool)
            mask = self._mask(count, chain, self._pending.depths)
        ids = self._inputs(tokens, parents)
        self._cache.reserve(count)
        scores = self._run(ids, mask, positions, last_rows)
        tree = visible is not None or (count > 1 and last_rows == 0)
        if tree and not bool(scores.hidden.sum(dtype=torch.float32).isfinite()):
            if visible is None:
                visible = np.tri(count, cached - self._length + count, cached - self._length, dtype=bool)
            scores = self._one_by_one(ids, visible, positions)
            scores = Scores(scores.logits[-last_rows:], scores.hidden[-last_rows:])
        self._cache.rows += count
        return scores

    def _run(self, ids: Tensor, mask: Any, positions: Tensor, last_rows: int) -> Scores:
        with PASSES:
            scores = self._forward(ids[None], mask, positions[None], self._cache, last_rows)
        return Scores(scores.logits[:, : self.vocab_size], scores.hidden)

    def _one_by_one(self, ids: Tensor, visible: Visible, positions: Tensor) -> Scores:
        """The rows of a pass again, each behind nothing but its own ancestors.

        A mask adds minus infinity to what a row must not see, and NaN stays NaN: a row that overflows would spoil its
        siblings and the rows above it, and what they say would depend on more than their own path. (All rows of a
        chain count if all are asked for: behind the last row of a prompt nothing is left that it could spoil.)
        """
        cache, length, end = self._cache, self._length, self._cache.rows + len(ids)
        pending = [buffer.data[:, :, length:end].clone() for buffer in cache.buffers]
        found = []
        for row, seen in enumerate(visible):
            *ancestors, own = np.flatnonzero(seen).tolist()
            cache.rows = length + len(ancestors)
            for buffer, rows in zip(cache.buffers, pending, strict=True):
                buffer.data[:, :, length : cache.rows] = rows[:, :, ancestors]
            chain = np.ones((1, len(ancestors) + 1), dtype=bool)
            mask = None if self._window is None else self._mask(1, chain, range(len(ancestors) + 1))
            found.append(self._run(ids[row : row + 1], mask, positions[row : row + 1], 1))
            for buffer, rows in zip(cache.buffers, pending, strict=True):
                rows[:, :, own] = buffer.data[:, :, cache.rows]
        for buffer, rows in zip(cache.buffers, pending, strict=True):
            buffer.data[:, :, length:end] = rows
        cache.rows = end - len(ids)
        return Scores(*(torch.cat(blocks) for blocks in zip(*found, strict=True)))

    @torch.inference_mode()
    def keep(self, path: Sequence[int]) -> None:
        """See `LanguageModel.keep`."""
        self._cache.keep(self._length, path)
        self._length += len(path)
        self._forget()

    def _mask(self, count: int, visible: Visible, depths: Sequence[int]) -> Tensor | dict[str, Tensor]:
        """Additive `[1, 1, count, length + pending]`: every row sees the committed context, and `visible`.

        `depths` are those of the pending rows.

        A model with layers of two kinds gets a mask of each.
        """
        seen = np.ones((count, self._length + visible.shape[1]), dtype=bool)
        seen[:, self._length :] = visible
        if self._window is None:
            return self._additive(seen)
        near = self._additive(windowed(visible, depths, self._length, self._window))
        return {"full_attention": self._additive(seen), "sliding_attention": near} if self._mixed else near

    def _additive(self, seen: Visible) -> Tensor:
        mask = torch.from_numpy(np.where(seen, np.float32(0), np.float32(-np.inf)))
        return mask[None, None].to(self.device, self.dtype)


def max_positions(model: PreTrainedModel) -> int | None:
    """Longest text of a model by its configuration; None where that names none.

    Where all rotations change behind some position (longrope), a text ends there: `generate` then turns all keys
    anew, and those in the cache would stay as they are.
    """
    config: Any = model.config.get_text_config(decoder=True)
    found = [getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")]
    rope = getattr(config, "rope_parameters", None) or {}
    for kind in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if kind.get("rope_type", "default") not in STEADY_ROTATIONS:
            found += [kind.get(ORIGINAL), getattr(config, ORIGINAL, None)]
    return min((limit for limit in found if isinstance(limit, int) and limit > 0), default=None)
