"""A small pair of transformers models in folders, for runs in other processes; and what a run wrote."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from selector.config import Config, PairConfig
from selector.dataset.manifest import Manifest
from tests.support.small_runs import small_config
from tests.support.tiny_models import disturbed, tiny_model

WORDS = 32


def save_pair(folder: Path) -> PairConfig:
    """Random Llamas in `folder/target` and `folder/draft`, the draft near the target, with a tokenizer of words."""
    target = tiny_model(
        "Llama", vocab=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, eos_token_id=0,
    )  # fmt: skip
    tokenizer = Tokenizer(models.WordLevel({"<end>": 0} | {f"w{i}": i for i in range(1, WORDS)}, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    for name, model in {"target": target, "draft": disturbed(target, 0.3)}.items():
        model.save_pretrained(folder / name)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder / name)
    return PairConfig(str(folder / "target"), str(folder / "draft"), dtype="float32", device="cpu", threads=1)


def disk_config(folder: Path, prompt_file: str, **generate: object) -> Config:
    """`small_config` for such a pair; the tokenizer knows no chat template."""
    config = small_config([prompt_file], chat_template=False, **generate)
    return replace(config, pair=save_pair(folder))


def rows(folder: Path) -> list[dict]:
    """All rows in the units' order."""
    manifest = Manifest.load(folder)
    return [
        row
        for unit in manifest.units
        if unit.shard
        for row in pq.read_table(folder / "shards" / unit.shard).to_pylist()
    ]
