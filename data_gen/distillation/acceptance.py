"""Acceptance rate of a draft, `sum min(target, draft)`, measured on answers that the target samples."""

from __future__ import annotations

from statistics import mean, stdev

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from data_gen.distillation.openings import Opening
from data_gen.distillation.sampling import encode_openings, sample_batch
from selector.distributions import Sampling, warp

Interval = tuple[float, float]


@torch.inference_mode()
def acceptance_per_prompt(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    head_tokens: torch.Tensor | None,
    prompts: list[str],
    sampling: Sampling,
    *,
    new_tokens: int = 96,
    seed: int = 0,
) -> list[float]:
    """Mean acceptance rate over one sampled answer to each prompt, both laws warped with `sampling`."""
    openings: list[Opening] = [(prompt, True) for prompt in prompts]
    end_of_turn, end_token = str(tokenizer.eos_token), tokenizer.eos_token_id
    assert isinstance(end_token, int)
    batch = sample_batch(
        target, encode_openings(tokenizer, openings, end_of_turn), torch.ones(len(prompts), dtype=torch.bool),
        torch.tensor([[sampling.temperature, sampling.top_p]] * len(prompts)), new_tokens=new_tokens, top_tokens=1,
        end_token=end_token, generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    rates = []
    width = batch["prompt_mask"].shape[1]
    for row, prompt_mask, alive in zip(batch["tokens"], batch["prompt_mask"], batch["loss_mask"], strict=True):
        skip, length = int((~prompt_mask).sum()), int(alive.sum())
        tokens = row[None, skip : width + length - 1].long()
        laws: list[torch.Tensor] = []
        for model, support in ((target, None), (draft, head_tokens)):
            hidden = model.base_model(tokens, use_cache=False).last_hidden_state[0, -length:]
            law = warp(model.lm_head(hidden), sampling)
            laws.append(law if support is None else torch.zeros(length, laws[0].shape[1]).index_copy(1, support, law))
        rates.append(float(torch.minimum(*laws).sum(-1).mean()))
    return rates


def with_interval(values: list[float]) -> Interval:
    """`(mean, half width of its 95% interval)` over prompts."""
    return mean(values), 1.96 * stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
