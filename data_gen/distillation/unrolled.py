"""A draft's laws at every position of a batch, as if it had drafted one, two, three tokens since the target's pass.

A draft that reads the target has the target's hidden state before a token that is committed, and its own state before
a token that it drafted. Pass `k` gives every position the states of pass `k - 1`; keys and values of the positions
before it come from the pass in which decoding would have made them. The same for a draft that reads tokens alone is
one pass: its laws do not depend on what was drafted.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from data_gen.distillation.shards import Batch, before
from selector.engine.early_exit import reads_target


def unrolled_logits(draft: PreTrainedModel, batch: Batch, depths: int) -> list[Tensor]:
    """`depths` times `[sampled tokens, head]`: the logits where the batch has a law of the target."""
    base: Any = draft.base_model
    reads = reads_target(draft)
    embedded, states = base.embed_tokens(batch.tokens), batch.states
    positions = (batch.mask.long().cumsum(-1) - 1).clamp(min=0)
    cache, logits = DynamicCache(), []
    argument = "cache" if "cache" in inspect.signature(type(base).forward).parameters else "past_key_values"
    for depth in range(depths if reads else 1):
        hidden = base(
            inputs_embeds=base.fuse(embedded, states) if reads else embedded,
            attention_mask=_mask(batch.mask, depth, embedded.dtype), position_ids=positions,
            use_cache=depths > 1, **({argument: cache} if depths > 1 else {}),
        ).last_hidden_state  # fmt: skip
        logits.append(draft.lm_head(hidden[:, batch.start :][batch.loss_mask]))
        states = before(hidden, batch.mask)
    return logits


def _mask(mask: Tensor, depth: int, dtype: torch.dtype) -> Tensor:
    """Additive `[rows, 1, length, (depth + 1) * length]`: the keys of all passes so far.

    In pass `depth` a position sees itself in this pass, the one before it in the pass before, and so on; and all
    positions before those in the first pass.
    """
    length = mask.shape[1]
    distance = torch.arange(length, device=mask.device)[:, None] - torch.arange(length, device=mask.device)
    seen = torch.cat([distance >= depth, *(distance == depth - k for k in range(1, depth + 1))], 1)
    seen = seen & mask.repeat(1, depth + 1)[:, None, None]
    return torch.zeros(seen.shape, dtype=dtype, device=mask.device).masked_fill_(~seen, torch.finfo(dtype).min)
