"""Sampled text as training batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """`tokens`, `mask [rows, length]`; the target's law of the token after input position `start + j`:
    `top_ids`, `top_logprobs [rows, sampled, top]`, where `loss_mask [rows, sampled]` is True."""

    tokens: Tensor
    mask: Tensor
    start: int
    top_ids: Tensor
    top_logprobs: Tensor
    loss_mask: Tensor


def shard_batches(path: Path, batch_size: int, rng: random.Random | None) -> Iterator[Batch]:
    """The rows of a shard in random order (in file order without `rng`), padding trimmed on both sides."""
    shard = load_file(path)
    order = list(range(len(shard["tokens"])))
    if rng is not None:
        rng.shuffle(order)
    width = shard["prompt_mask"].shape[1]
    for first in range(0, len(order), batch_size):
        rows = torch.tensor(order[first : first + batch_size])
        prompt_mask, loss_mask = shard["prompt_mask"][rows], shard["loss_mask"][rows]
        skip = int((~prompt_mask).all(0).sum())
        sampled = int(loss_mask.any(0).sum())
        yield Batch(
            tokens=shard["tokens"][rows, skip : width + sampled - 1].long(),
            mask=torch.cat([prompt_mask[:, skip:], loss_mask[:, : sampled - 1]], 1).long(),
            start=width - skip - 1,
            top_ids=shard["top_ids"][rows, :sampled].long(),
            top_logprobs=shard["top_logprobs"][rows, :sampled].float(),
            loss_mask=loss_mask[:, :sampled],
        )


def frequent_tokens(paths: list[Path], vocab_size: int, count: int) -> Tensor:
    """The `count` tokens with the most expected occurrences under the target, ids ascending."""
    mass = torch.zeros(vocab_size, dtype=torch.float64)
    for path in paths:
        shard = load_file(path)
        keep = shard["loss_mask"]
        mass.index_add_(
            0, shard["top_ids"][keep].flatten().long(), shard["top_logprobs"][keep].flatten().double().exp()
        )
    return mass.topk(count).indices.sort().values
