"""Transformers' own generation with the same models and the same law: what decoding is compared with."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig
from transformers.utils import logging

from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel


class VocabularyHead(nn.Module):
    """A head whose logits are brought to the vocabulary: those past it cut, those of a support spread over it.

    They are `-inf` outside the support.
    """

    def __init__(self, head: nn.Module, support: Tensor | None, vocab_size: int) -> None:
        super().__init__()
        self.head, self.support, self.vocab_size = head, support, vocab_size

    def forward(self, hidden: Tensor) -> Tensor:
        """`[.., hidden] -> [.., vocab]`."""
        logits: Tensor = self.head(hidden)
        if self.support is None:
            return logits[..., : self.vocab_size]
        spread = logits.new_full((*logits.shape[:-1], self.vocab_size), float("-inf"))
        spread[..., self.support] = logits
        return spread


def assistant(draft: HuggingFaceModel) -> Any:
    """The draft as an assistant model of transformers, which wants logits over the whole vocabulary."""
    if draft.support is None and draft.rows == draft.vocab_size:
        return draft.model
    model = copy.copy(draft.model)
    model._modules = dict(draft.model._modules)
    model.lm_head = VocabularyHead(draft.model.lm_head, draft.support, draft.vocab_size)
    model.generation_config = copy.deepcopy(draft.model.generation_config)
    model.config = copy.deepcopy(draft.model.config)
    model.config.get_text_config(decoder=True).vocab_size = draft.vocab_size
    return model


def transformers_generate(
    target: HuggingFaceModel,
    prompt: Sequence[int],
    max_new_tokens: int,
    sampling: Sampling,
    seed: int = 0,
    end_ids: Sequence[int] = (),
    **options: Any,
) -> list[int]:
    """New tokens of `target.model.generate`, the end token included; `options` go to it as they are.

    The law is that of `sampling` alone: the models' own generation settings, such as a repetition penalty, are
    left out.
    """
    ids = torch.tensor([list(prompt)], device=target.device)
    settings: dict[str, Any] = {"do_sample": sampling.temperature > 0}
    if sampling.temperature > 0:
        settings |= {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=max_new_tokens,
        eos_token_id=list(end_ids) or None,
        pad_token_id=end_ids[0] if end_ids else 0,
        **settings,
    )
    torch.manual_seed(seed)
    with _without_defaults(target.model):
        output = target.model.generate(ids, config, attention_mask=torch.ones_like(ids), **options)
    return [int(token) for token in output[0, len(prompt) :].tolist()]


@contextmanager
def _without_defaults(model: Any) -> Iterator[None]:
    """`generate` fills what a given config leaves open with the model's own settings; here it finds none.

    Its warnings are left out: assisted generation calls deprecated forms of itself.
    """
    own, model.generation_config = model.generation_config, GenerationConfig()  # type: ignore[no-untyped-call]
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        model.generation_config = own
