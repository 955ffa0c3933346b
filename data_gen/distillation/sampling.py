"""Training text for a draft: chats that the target writes itself, with its own next-token laws.

Rows of one batch run in lockstep; a row leaves when its answer ends or repeats itself. The user turn is sampled at
temperature 1, the answer at one of the sampling settings. Each finished batch is one safetensors shard, so a killed
run resumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from data_gen.distillation.batch_passes import BatchPasses
from data_gen.distillation.openings import TASKS, Opening, sample_openings
from data_gen.distillation.repeats import kept_length
from selector.artifacts.writing import atomic_write
from selector.distributions import Sampling, warp
from selector.distributions import draw as draw_tokens
from selector.engine.huggingface import end_tokens
from selector.engine.prompts import closing_tokens, encode_chat

CELL = 256  # tokens: a draw finds its cell of the vocabulary first
ROWS = 8  # laws that are made at a time on a CPU, so that they stay in its caches


def left_pad(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """`(ids, mask)`, both `[batch, longest]`, padded on the left."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def draw(logits: Tensor, settings: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row of `logits [batch, vocab]`; `settings [batch, 2]`: temperature and top-p of each row."""
    tokens = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    size = ROWS if logits.device.type == "cpu" else len(logits)
    for temperature, top_p in sorted(set(map(tuple, settings.tolist()))):
        sampling = Sampling(round(temperature, 6), round(top_p, 6))
        own = ((settings[:, 0] == temperature) & (settings[:, 1] == top_p)).nonzero()[:, 0]
        for rows in torch.split(own, size):
            tokens[rows] = _draw(warp(logits[rows], sampling), generator)
    return tokens


def _draw(probs: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row of `probs [rows, vocab]`: first its cell of the vocabulary, then the token."""
    cells = nn.functional.pad(probs, (0, -probs.shape[1] % CELL)).view(len(probs), -1, CELL)
    cell = draw_tokens(cells.sum(-1), generator)
    rows = torch.arange(len(cell), device=probs.device)
    return cell * CELL + draw_tokens(cells[rows, cell], generator)


@dataclass(frozen=True)
class Turns:
    """Where turns end: a user's with the last tokens `closing` (a chat template's), any text with one of `ends`."""

    closing: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def pad(self) -> int:
        """What fills rows that have ended."""
        return self.ends[0] if self.ends else 0

    def left(self, turns: Tensor, tokens: Tensor) -> Tensor:
        """`turns [rows]` that are left of the user's and the answer's after `tokens [rows, so far]`."""
        count = len(self.closing)
        closed = (tokens[:, -count:] == torch.tensor(self.closing)).all(-1) if count else torch.zeros_like(turns).bool()
        ended = torch.isin(tokens[:, -1], torch.tensor(self.ends, dtype=tokens.dtype))
        return torch.where((turns == 2) & closed, 1, torch.where(ended, 0, turns))


@torch.inference_mode()
def sample_batch(
    passes: BatchPasses,
    prompts: list[list[int]],
    answered: Tensor,
    settings: Tensor,
    *,
    new_tokens: int,
    top_tokens: int,
    turns: Turns,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Sample up to `new_tokens` after every prompt and record the target's law at each of them.

    `answered [batch]` is True where the prompt already ends in the answer's turn; `settings [batch, 2]` holds
    the answer's temperature and top-p. Returns `tokens [batch, length]`, `prompt_mask [batch, width]`, and for the
    sampled part `loss_mask [batch, new]` (True where the token was sampled), `top_ids`, `top_logprobs [batch, new,
    top_tokens]` (temperature 1, before warping); `states [batch, length, d]`: the target's last hidden state at every
    input. A row ends after its answer's end token, or where it only repeats itself; the rest is padding.
    """
    device = passes.model.device
    ids, mask = left_pad(prompts, turns.pad)
    batch, width = ids.shape
    passes.start(mask.to(device), new_tokens)
    tokens = torch.full((batch, width + new_tokens), turns.pad, dtype=torch.int32)
    tokens[:, :width] = ids
    alive = torch.zeros(batch, new_tokens, dtype=torch.bool)
    top_ids = torch.zeros(batch, new_tokens, top_tokens, dtype=torch.int32)
    top_logprobs = torch.zeros(batch, new_tokens, top_tokens, dtype=torch.float16)
    logits, hidden = passes.run(ids.to(device))
    states = torch.zeros(batch, width + new_tokens, hidden.shape[-1], dtype=torch.bfloat16)
    states[:, :width] = hidden
    rows, left = torch.arange(batch), torch.where(answered, 1, 2)
    user = torch.ones(2, dtype=settings.dtype)
    for step in range(new_tokens):
        warps = torch.where((left <= 1)[:, None], settings[rows], user)
        token = draw(logits, warps.to(device), generator).cpu()
        top = logits.topk(top_tokens)
        alive[rows, step] = left > 0
        tokens[rows, width + step] = torch.where(left > 0, token, turns.pad).to(torch.int32)
        top_ids[rows, step] = top.indices.to("cpu", torch.int32)
        top_logprobs[rows, step] = (top.values.float() - _log_norm(logits)[:, None]).half().cpu()
        left = turns.left(left, tokens[rows, : width + step + 1])
        if passes.cache.length == passes.cache.columns:
            left = torch.where(_repeats(tokens[rows, : width + step + 1], mask[rows]), 0, left)
            kept = (left > 0).nonzero()[:, 0]
            passes.keep(kept.to(device))
            rows, left, token = rows[kept], left[kept], token[kept]
        if not bool((left > 0).any()) or step == new_tokens - 1:
            break
        logits, hidden = passes.run(token[:, None].to(device))
        states[rows, width + step] = hidden[:, 0].to("cpu", torch.bfloat16)
    for row, prompt in enumerate(prompts):
        text = tokens[row, width - len(prompt) : width + int(alive[row].sum())].tolist()
        alive[row, max(kept_length(text) - len(prompt), 0) :] = False
    return {
        "tokens": tokens,
        "prompt_mask": mask.bool(),
        "loss_mask": alive,
        "top_ids": top_ids,
        "top_logprobs": top_logprobs,
        "states": states,
    }


def _log_norm(logits: Tensor) -> Tensor:
    size = ROWS if logits.device.type == "cpu" else len(logits)
    return torch.cat([rows.float().logsumexp(-1) for rows in torch.split(logits, size)])


def _repeats(tokens: Tensor, mask: Tensor) -> Tensor:
    """Which rows only repeat themselves by now."""
    lengths = [tokens.shape[1] - int((~row.bool()).sum()) for row in mask]
    texts = [row[len(row) - length :].tolist() for row, length in zip(tokens, lengths, strict=True)]
    return torch.tensor([kept_length(text) < len(text) for text in texts])


def encode_opening(tokenizer: PreTrainedTokenizerBase, opening: Opening) -> list[int]:
    """Token ids of an opening inside the chat template, where there is one; an incomplete turn is left open."""
    chat, templated = [{"role": "user", "content": opening.text}], bool(tokenizer.chat_template)
    tokens = encode_chat(tokenizer, chat, chat_template=templated, open_turn=not opening.complete)
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    return tokens or [int(start or 0)]


def sample_shards(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    *,
    token_budget: int,
    batch_size: int,
    new_tokens: int,
    top_tokens: int,
    settings: list[tuple[float, float]],
    seed: int,
) -> Iterator[tuple[Path, int]]:
    """Write shards until `token_budget` sampled tokens exist; yields `(shard, its sampled tokens)`.

    Shards that already exist are counted, not made again: shard `i` depends on `seed` and `i` alone.
    """
    turns = Turns(tuple(closing_tokens(tokenizer)), end_tokens(model, tokenizer))
    passes = BatchPasses(model)
    done, index = 0, 0
    while done < token_budget:
        path = folder / f"text-{index:05d}.safetensors"
        if not path.exists():
            openings = sample_openings(batch_size, seed * 100_003 + index)
            generator = torch.Generator(model.device).manual_seed(seed * 100_003 + index)
            grid = torch.tensor([settings[i % len(settings)] for i in range(batch_size)])
            batch = sample_batch(
                passes, [encode_opening(tokenizer, opening) for opening in openings],
                torch.tensor([opening.complete or not turns.closing for opening in openings]), grid,
                new_tokens=new_tokens, top_tokens=top_tokens, turns=turns, generator=generator,
            )  # fmt: skip
            batch["tasks"] = torch.tensor([TASKS.index(opening.task) for opening in openings])
            batch["settings"] = grid
            with atomic_write(path) as temporary:
                save_file(batch, temporary, {"sampled_tokens": str(int(batch["loss_mask"].sum()))})
        with safe_open(path, "pt") as shard:
            count = int(shard.metadata()["sampled_tokens"])
        done, index = done + count, index + 1
        yield path, count
