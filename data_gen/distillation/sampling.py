"""Training text for a draft: chats that the target writes itself, with its own next-token laws.

Rows of one batch run in lockstep over a static cache. The user turn is sampled at temperature 1, the answer
at one of the sampling settings. Each finished batch is one safetensors shard, so a killed run resumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, StaticCache

from data_gen.distillation.openings import Opening, sample_openings
from selector.artifacts import atomic_write

NUCLEUS_CANDIDATES = 1024  # training text only: the tail past these tokens is cut when top-p is below 1


def encode_openings(tokenizer: PreTrainedTokenizerBase, openings: list[Opening], end_of_turn: str) -> list[list[int]]:
    """Token ids of each opening inside the chat template; an incomplete user turn is left open at its end."""
    rows = []
    for text, complete in openings:
        chat = [{"role": "user", "content": text}]
        rendered = str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=complete))
        if not complete:
            rendered = rendered[: rendered.rindex(end_of_turn)]
        rows.append(list(tokenizer(rendered, add_special_tokens=False)["input_ids"]))
    return rows


def left_pad(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """`(ids, mask)`, both `[batch, longest]`, padded on the left."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def draw(logits: Tensor, temperature: Tensor, top_p: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row of `logits [batch, vocab]`; `temperature`, `top_p`: `[batch]`."""
    scaled = logits.float() / temperature[:, None]
    uniform = torch.rand(len(logits), generator=generator)
    tokens = _inverse_cdf(torch.softmax(scaled, -1), uniform)
    nucleus = (top_p < 1).nonzero()[:, 0]
    if len(nucleus):
        log_norm = scaled[nucleus].logsumexp(-1, keepdim=True)
        top, ids = scaled[nucleus].topk(min(NUCLEUS_CANDIDATES, logits.shape[-1]))
        probs = (top - log_norm).exp()
        before = probs.cumsum(-1) - probs
        probs = torch.where(before < top_p[nucleus, None], probs, 0.0)
        choice = _inverse_cdf(probs / probs.sum(-1, keepdim=True), uniform[nucleus])
        tokens[nucleus] = ids.gather(1, choice[:, None])[:, 0]
    return tokens


def _inverse_cdf(probs: Tensor, uniform: Tensor) -> Tensor:
    cumulative = probs.cumsum(-1)
    index = torch.searchsorted(cumulative, (uniform * cumulative[:, -1])[:, None], right=True)[:, 0]
    return index.clamp(max=probs.shape[-1] - 1)


@torch.inference_mode()
def sample_batch(
    model: PreTrainedModel,
    prompts: list[list[int]],
    answered: Tensor,
    settings: Tensor,
    *,
    new_tokens: int,
    top_tokens: int,
    end_token: int,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Sample `new_tokens` after every prompt and record the target's law at each of them.

    `answered [batch]` is True where the prompt already ends in the answer's turn; `settings [batch, 2]` holds
    the answer's temperature and top-p. Returns `tokens [batch, length]`, `loss_mask [batch, length]` (True
    where the token was sampled), and for the sampled part `top_ids`, `top_logprobs [batch, new, top_tokens]`
    (temperature 1, before warping). A row ends after its answer's end token; the rest is padding.
    """
    ids, mask = left_pad(prompts, end_token)
    batch, width = ids.shape
    cache = StaticCache(config=model.config, max_cache_len=width + new_tokens)
    full_mask = torch.cat([mask, torch.ones(batch, new_tokens, dtype=mask.dtype)], 1)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    hidden = model.model(
        ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True
    ).last_hidden_state[:, -1]
    turns_left = torch.where(answered, 1, 2)
    records: dict[str, list[Tensor]] = {"tokens": [], "alive": [], "top_ids": [], "top_logprobs": []}
    for step in range(new_tokens):
        logits = model.lm_head(hidden).float()
        top, top_ids = logits.topk(top_tokens)
        answering = turns_left <= 1
        temperature = torch.where(answering, settings[:, 0], 1.0)
        token = draw(logits, temperature, torch.where(answering, settings[:, 1], 1.0), generator)
        alive = turns_left > 0
        records["tokens"].append(token)
        records["alive"].append(alive)
        records["top_ids"].append(top_ids.to(torch.int32))
        records["top_logprobs"].append((top - logits.logsumexp(-1, keepdim=True)).half())
        turns_left = turns_left - (token == end_token).long()
        if not bool((turns_left > 0).any()) or step == new_tokens - 1:
            break
        place = positions[:, -1:] + 1 + step
        hidden = model.model(
            token[:, None], attention_mask=full_mask[:, : width + step + 1], position_ids=place, cache=cache,
            use_cache=True,
        ).last_hidden_state[:, -1]  # fmt: skip
    sampled = {name: torch.stack(values, 1) for name, values in records.items()}
    alive = sampled.pop("alive")
    tokens = torch.cat([ids, torch.where(alive, sampled["tokens"], end_token)], 1)
    return {
        "tokens": tokens.to(torch.int32),
        "prompt_mask": mask.bool(),
        "loss_mask": alive,
        "top_ids": sampled["top_ids"],
        "top_logprobs": sampled["top_logprobs"],
    }


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
    end_of_turn: str,
    seed: int,
) -> Iterator[tuple[Path, int]]:
    """Write shards until `token_budget` sampled tokens exist; yields `(shard, its sampled tokens)`.

    Shards that already exist are counted, not made again: shard `i` depends on `seed` and `i` alone.
    """
    end_token = tokenizer.convert_tokens_to_ids(end_of_turn)
    assert isinstance(end_token, int)
    done, index = 0, 0
    while done < token_budget:
        path = folder / f"text-{index:05d}.safetensors"
        if not path.exists():
            openings = sample_openings(batch_size, seed * 100_003 + index)
            generator = torch.Generator().manual_seed(seed * 100_003 + index)
            grid = torch.tensor([settings[i % len(settings)] for i in range(batch_size)])
            batch = sample_batch(
                model, encode_openings(tokenizer, openings, end_of_turn),
                torch.tensor([complete for _, complete in openings]), grid, new_tokens=new_tokens,
                top_tokens=top_tokens, end_token=end_token, generator=generator,
            )  # fmt: skip
            with atomic_write(path) as temporary:
                save_file(batch, temporary, {"sampled_tokens": str(int(batch["loss_mask"].sum()))})
        with safe_open(path, "pt") as shard:
            count = int(shard.metadata()["sampled_tokens"])
        done, index = done + count, index + 1
        yield path, count
