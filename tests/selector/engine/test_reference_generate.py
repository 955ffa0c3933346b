"""transformers' generation follows the law it is asked for, whatever the model's own generation settings say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from selector.decoding.decoder import Decoder
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.reference_generate import transformers_generate
from selector.trees.expansion import Expansion
from tests.support.tiny_models import tiny_llama

SETTINGS: dict[str, Any] = {"repetition_penalty": 3.0, "suppress_tokens": [5, 6, 7], "min_new_tokens": 20}


def opinionated() -> HuggingFaceModel:
    model: Any = tiny_llama()
    for name, value in SETTINGS.items():
        setattr(model.generation_config, name, value)
    return HuggingFaceModel(model)


@pytest.mark.parametrize("assisted", [False, True])
def test_the_models_own_settings_do_not_change_the_law(assisted: bool, draft: HuggingFaceModel) -> None:
    target = opinionated()
    pair: Any = SimpleNamespace(target=target, draft=draft, end_ids=(), decode=str)
    expected = Decoder(pair, "nss", Expansion(2, 1, 2)).generate([3, 4, 5], 24).tokens
    before = torch.tensor([[3, 4, 5]])
    own = target.model.generate(before, max_new_tokens=24, do_sample=False)[0, 3:].tolist()
    assert own != expected, "the settings matter to this model"
    helper = draft.model if assisted else None
    assert transformers_generate(target, [3, 4, 5], 24, Sampling(0.0), assistant_model=helper) == expected
    assert target.model.generation_config.repetition_penalty == SETTINGS["repetition_penalty"]


def test_sampled_text_is_that_of_a_model_without_settings(target: HuggingFaceModel) -> None:
    texts = [transformers_generate(model, [3, 4], 20, Sampling(0.9, 0.9, 20), 3) for model in (opinionated(), target)]
    assert texts[0] == texts[1]
