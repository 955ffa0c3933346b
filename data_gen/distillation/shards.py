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
    """Rows of sampled text with the target's laws along it.

    Attributes:
        tokens, mask: `[rows, length]`, padded on both sides.
        states: `[rows, length, d]`, the target's last hidden state before each token, zeros where there is none.
        tasks: `[rows]`, places in `openings.TASKS`.
        start: the target's law of the token after input position `start + j` is at place `j`.
        top_ids, top_logprobs: `[rows, sampled, top]`.
        loss_mask: `[rows, sampled]`, True where a token was sampled.
    """

    tokens: Tensor
    mask: Tensor
    states: Tensor
    tasks: Tensor
    start: int
    top_ids: Tensor
    top_logprobs: Tensor
    loss_mask: Tensor


def shard_batches(path: Path, batch_size: int, rng: random.Random | None) -> Iterator[Batch]:
    """The rows of a shard that have a law, rows of about one length together (in file order without `rng`).

    Padding is trimmed on both sides.
    """
    shard = load_file(path)
    counts = shard["loss_mask"].sum(1)
    order = [row for row, count in enumerate(counts.tolist()) if count]
    if rng is not None:
        rng.shuffle(order)
        order.sort(key=lambda row: int(counts[row]))
    groups = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    if rng is not None:
        rng.shuffle(groups)
    for group in groups:
        yield row_batch(shard, torch.tensor(group))


def row_batch(shard: dict[str, Tensor], rows: Tensor) -> Batch:
    """The batch of some rows of a shard, in this order."""
    width = shard["prompt_mask"].shape[1]
    prompt_mask, loss_mask = shard["prompt_mask"][rows], shard["loss_mask"][rows]
    skip = int((~prompt_mask).all(0).sum())
    sampled = int(loss_mask.any(0).sum())
    mask = torch.cat([prompt_mask[:, skip:], loss_mask[:, : sampled - 1]], 1)
    return Batch(
        tokens=shard["tokens"][rows, skip : width + sampled - 1].long(),
        mask=mask,
        states=before(shard["states"][rows, skip : width + sampled - 1], mask),
        tasks=shard["tasks"][rows],
        start=width - skip - 1,
        top_ids=shard["top_ids"][rows, :sampled].long(),
        top_logprobs=shard["top_logprobs"][rows, :sampled].float(),
        loss_mask=loss_mask[:, :sampled],
    )


def before(states: Tensor, mask: Tensor) -> Tensor:
    """`states [rows, length, d]` moved by one: at every position that of the position before, zeros at the first."""
    moved = torch.nn.functional.pad(states * mask[..., None], (0, 0, 1, 0))
    return moved[:, :-1]


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
