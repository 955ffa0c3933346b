"""What a decoder refuses before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from selector.decoding.decoder import Decoder
from selector.engine.causal_model import HuggingFaceModel
from selector.errors import UserError
from selector.trees.expansion import Expansion
from tests.support.table_model import TableModel
from tests.support.tiny_models import tiny_llama


def pair_of(target: Any, draft: Any) -> Any:
    return SimpleNamespace(target=target, draft=draft, end_ids=(), decode=str)


def tables() -> Any:
    return pair_of(TableModel(4, 0), TableModel(4, 1))


@pytest.mark.parametrize("short", ["target", "draft"])
def test_text_past_the_positions(short: str) -> None:
    models = [
        HuggingFaceModel(tiny_llama(max_position_embeddings=16 if name == short else 64))
        for name in ("target", "draft")
    ]
    decoder = Decoder(pair_of(*models), "nss", Expansion(2, 0, 3))
    assert len(decoder.generate([1] * 6, 10).tokens) == 10
    message = (
        f"max_new_tokens is 11 after a prompt of 6 tokens, and the {short} holds 16 tokens in all: give at most 10"
    )
    with pytest.raises(UserError, match=message):
        decoder.generate([1] * 6, 11)
    with pytest.raises(UserError, match=message):
        decoder.stream([1] * 6, max_new_tokens=11)
    with pytest.raises(UserError, match=r"after a prompt of 16 tokens.*: shorten the prompt"):
        decoder.generate([1] * 16, 1)


def test_specinfer_with_many_branches() -> None:
    message = r"expansion is \(17, 0, 1\) for verifier 'specinfer'.* not 17"
    with pytest.raises(UserError, match=message):
        Decoder(tables(), "specinfer", Expansion(17, 0, 1))
    Decoder(tables(), "specinfer", Expansion(17, 3, 0))
    Decoder(tables(), "nss", Expansion(17, 0, 1)).generate([1], 4)
    policy: Any = SimpleNamespace(choose=lambda root: Expansion(17, 0, 1))
    with pytest.raises(UserError, match=message):
        Decoder(tables(), "specinfer", policy).generate([1], 4)


@pytest.mark.parametrize("expansion", [(0, 0, 3), (1, -1, 3), (2, 0, -1), (1, 2), (2.5, 0, 2), ("2", "0", "2")])
def test_expansions_that_are_none(expansion: Any) -> None:
    with pytest.raises(UserError, match=r"expansion is \(.*give whole numbers \(K, L1, L2\)"):
        Decoder(tables(), "nss", expansion)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_that_torch_does_not_take(seed: int) -> None:
    decoder = Decoder(tables(), "nss", Expansion(1, 0, 1))
    with pytest.raises(UserError, match=f"seed is {seed}"):
        decoder.stream([1], max_new_tokens=2, seed=seed)
    for good in (2**64 - 1, -(2**63)):
        decoder.generate([1], 2, seed=good)


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("max_new_tokens", "4", "give a whole number of 1 or more"),
        ("max_new_tokens", 4.0, "give a whole number of 1 or more"),
        ("max_new_tokens", None, "give a whole number of 1 or more"),
        ("max_new_tokens", True, "give a whole number of 1 or more"),
        ("sampling", 0.7, "give a Sampling, as Sampling"),
        ("sampling", None, "give a Sampling, as Sampling"),
        ("seed", "1", "give an integer from"),
        ("seed", None, "give an integer from"),
        ("seed", 1.5, "give an integer from"),
        ("stop_strings", 3, "give a text, or a list of texts"),
        ("stop_strings", [3], "give a text, or a list of texts"),
        ("stop_strings", None, "give a text, or a list of texts"),
        ("end_ids", 2, "give a list of token ids"),
        ("end_ids", ["2"], "give a list of token ids"),
        ("prompt", 5, "give a text, or a list of token ids"),
        ("prompt", None, "give a text, or a list of token ids"),
        ("prompt", ["a"], "give a text, or a list of token ids"),
        ("prompt", [1.5], "give a text, or a list of token ids"),
        ("prompt", torch.ones(1, 3, dtype=torch.int64), "give a text, or a list of token ids"),
    ],
)
def test_arguments_of_another_kind(name: str, value: Any, way_out: str) -> None:
    decoder = Decoder(tables(), "nss", Expansion(1, 0, 1))
    arguments = {"prompt": [1], "max_new_tokens": 4} | {name: value}
    for call in (decoder.generate, decoder.stream):
        with pytest.raises(UserError, match=f"^{name} is (?s:.*): {way_out}"):
            call(**arguments)  # type: ignore[operator]


def test_whole_numbers_of_other_libraries() -> None:
    decoder = Decoder(tables(), "nss", Expansion(1, 0, 1))
    own = decoder.generate([1, 2], 4, seed=3, end_ids=[0]).tokens
    prompts: list[Any] = [torch.tensor([1, 2]), np.array([1, 2])]
    for prompt in prompts:
        end_ids: Any = np.array([0])
        assert decoder.generate(prompt, np.int64(4), seed=np.int64(3), end_ids=end_ids).tokens == own  # type: ignore


@pytest.mark.parametrize("warp", ["other", None, 0.5, [0.5], [0.5, 1.0, 1.0], ["a", "b"], {"temperature": 1.0}])
def test_draft_warps_that_are_none(warp: Any) -> None:
    with pytest.raises(UserError, match=r"draft_warp is .*: give 'same' or"):
        Decoder(tables(), "nss", Expansion(1, 0, 1), warp)


@pytest.mark.parametrize("warp", ["same", (0.5, 1.0), [1, 0.9]])
def test_draft_warps(warp: str | Sequence[float]) -> None:
    decoder = Decoder(tables(), "nss", Expansion(1, 0, 1), warp)  # type: ignore[arg-type]
    assert len(decoder.generate([1], 5).tokens) == 5
