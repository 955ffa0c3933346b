"""Acceptance rate of a draft, `sum min(target, draft)`, measured on answers that the target samples."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, stdev

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from data_gen.distillation.batch_passes import BatchPasses
from data_gen.distillation.sampling import Turns, sample_batch
from data_gen.distillation.shards import before, row_batch
from data_gen.distillation.unrolled import unrolled_logits
from selector.distributions import Sampling, warp
from selector.engine.huggingface import end_tokens
from selector.engine.prompts import encode_chat

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
    depths: int = 1,
    new_tokens: int = 96,
    seed: int = 0,
) -> list[list[float]]:
    """Mean acceptance rates by depth over one sampled answer to each prompt, both laws warped with `sampling`.

    At depth `k` the draft has drafted the `k - 1` tokens before; one that reads tokens alone has one rate for all.
    """
    encoded = [encode_chat(tokenizer, [{"role": "user", "content": prompt}]) for prompt in prompts]
    batch = sample_batch(
        BatchPasses(target), encoded, torch.ones(len(prompts), dtype=torch.bool),
        torch.tensor([[sampling.temperature, sampling.top_p]] * len(prompts)), new_tokens=new_tokens, top_tokens=1,
        turns=Turns((), end_tokens(target, tokenizer)), generator=torch.Generator(target.device).manual_seed(seed),
    )  # fmt: skip
    batch["tasks"] = torch.zeros(len(prompts), dtype=torch.long)
    rates = []
    for row in range(len(prompts)):
        one = row_batch(batch, torch.tensor([row]))
        hidden = target.base_model(one.tokens.to(target.device), use_cache=False).last_hidden_state
        one = replace(one, states=before(hidden, one.mask))
        law = warp(target.lm_head(hidden[0, one.start :]), sampling)
        if head_tokens is not None:
            law = law[:, head_tokens.to(law.device)]
        drafted = [warp(logits, sampling) for logits in unrolled_logits(draft, one, depths)]
        rates.append([float(torch.minimum(law, own).sum(-1).mean()) for own in drafted])
    return rates


def with_interval(values: list[float]) -> Interval:
    """`(mean, half width of its 95% interval)` over prompts."""
    return mean(values), 1.96 * stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
