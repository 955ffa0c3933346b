"""Small pairs and configurations for tests of whole runs."""

from types import SimpleNamespace

import torch

from selector.config import (
    ActionSpaceConfig,
    Config,
    DecodeConfig,
    DistillConfig,
    EvaluateConfig,
    GenerateConfig,
    PairConfig,
    TrainConfig,
)
from selector.pair_names import ModelName, PairNames
from tests.support.table_model import TableModel


class CharTokenizer:
    """One token a letter, modulo the vocabulary."""

    chat_template = "yes"

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return "".join(message["content"] for message in messages)

    def __call__(self, text, add_special_tokens=True):
        return SimpleNamespace(input_ids=[ord(letter) % 5 for letter in text])


def table_pair():
    """A pair of table models; token 4 ends a text."""
    return SimpleNamespace(
        target=TableModel(5, 1),
        draft=TableModel(5, 2, support=[0, 1, 2, 4]),
        tokenizer=CharTokenizer(),
        end_ids=(4,),
        dtype=torch.float32,
        names=PairNames(*(ModelName(name, licence="apache-2.0") for name in ("table-1", "table-2")), dtype="float32"),
    )


def small_config(prompts, **generate):
    """A configuration for table pairs: 31 actions, three settings."""
    values = {
        "prompts": prompts,
        "settings": [(0.5, 1.0), (1.0, 1.0), (1.0, 0.9)],
        "max_new_tokens": 7,
        "root_every": 3,
        "num_samples": 2,
        "verifiers": ["nss", "traversal"],
    }
    return Config(
        PairConfig(), ActionSpaceConfig(2, 1, 2), GenerateConfig(**(values | generate)),
        TrainConfig(), EvaluateConfig(), DistillConfig(), DecodeConfig(),
    )  # fmt: skip
