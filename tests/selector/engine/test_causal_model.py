"""Tree passes and the cache against token-by-token passes of the plain model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    Llama4TextConfig,
    LlamaForCausalLM,
    Qwen3NextConfig,
)

from selector.engine.cache import sliding_window
from selector.engine.causal_model import max_positions
from selector.engine.huggingface import HuggingFaceModel
from selector.errors import UserError
from tests.support.tiny_models import ARCHITECTURES, tiny_llama, tiny_model

#      0 -+- 1 --- 3 --- 6
#         +- 2 -+- 4
#               +- 5
PARENTS = [-1, 0, 0, 1, 2, 2, 3]


def plain(model: LlamaForCausalLM, tokens: list[int]) -> tuple[Tensor, Tensor]:
    """Last row's logits and hidden state of a pass without a cache."""
    with torch.inference_mode():
        output = model(input_ids=torch.tensor([tokens]), output_hidden_states=True, use_cache=False)
    return output.logits[0, -1], output.hidden_states[-1][0, -1]


def random_tokens(count: int, seed: int = 0, vocab: int = 64) -> list[int]:
    return torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def prefill(model: HuggingFaceModel, tokens: list[int]) -> None:
    model.reset()
    if tokens:
        model.extend(torch.tensor(tokens), range(-1, len(tokens) - 1), last_rows=1)
        model.keep(range(len(tokens)))


def ancestors(node: int) -> list[int]:
    return [] if node < 0 else [*ancestors(PARENTS[node]), node]


@pytest.mark.parametrize("context", [0, 1, 2, 63, 64, 65])
@pytest.mark.parametrize("calls", [[7], [1, 2, 3, 1], [3, 4]])
def test_tree_rows_equal_plain_passes(
    target: HuggingFaceModel, target_llama: LlamaForCausalLM, context: int, calls: list[int]
) -> None:
    prompt, tree = random_tokens(context), random_tokens(7, seed=1)
    prefill(target, prompt)
    logits, hidden = [], []
    start = 0
    for count in calls:
        scores = target.extend(torch.tensor(tree[start : start + count]), PARENTS[start : start + count])
        logits.append(scores.logits)
        hidden.append(scores.hidden)
        start += count
    for node in range(7):
        expected = plain(target_llama, prompt + [tree[row] for row in ancestors(node)])
        torch.testing.assert_close(torch.cat(logits)[node], expected[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(torch.cat(hidden)[node], expected[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("context", [1, 63, 64, 65, 127, 128, 129, 255, 256, 257])
@pytest.mark.parametrize("node", [-1, 0, 3, 5, 6])
def test_kept_path_equals_a_cache_built_token_by_token(
    target: HuggingFaceModel, target_llama: LlamaForCausalLM, context: int, node: int
) -> None:
    prompt, tree, path = random_tokens(context), random_tokens(7, seed=1), ancestors(node)
    prefill(target, prompt)
    target.extend(torch.tensor(tree), PARENTS)
    target.keep(path)
    fresh = HuggingFaceModel(target_llama)
    committed = prompt + [tree[row] for row in path]
    for token in committed:
        fresh.extend(torch.tensor([token]), [-1])
        fresh.keep([0])
    assert target.length == fresh.length == len(committed)
    for kept, built in zip(target._cache.buffers, fresh._cache.buffers, strict=True):
        rows = slice(0, len(committed))
        torch.testing.assert_close(kept.data[:, :, rows], built.data[:, :, rows], atol=1e-5, rtol=1e-5)
    after = [model.extend(torch.tensor([5, 6]), [-1, 0]).logits for model in (target, fresh)]
    torch.testing.assert_close(after[0], after[1], atol=1e-4, rtol=1e-4)


def test_last_rows_and_reset(target: HuggingFaceModel, target_llama: LlamaForCausalLM) -> None:
    prompt = random_tokens(40)
    for _ in range(2):
        target.reset()
        scores = target.extend(torch.tensor(prompt), range(-1, 39), last_rows=2)
        assert scores.logits.shape == (2, 64)
        assert scores.hidden.shape == (2, target.hidden_size)
        for row in (-2, -1):
            expected = plain(target_llama, prompt[: 40 + row + 1])
            torch.testing.assert_close(scores.logits[row], expected[0], atol=1e-4, rtol=1e-4)


def test_fingerprint_follows_weights_not_dtype(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM) -> None:
    rounded = LlamaForCausalLM(target_llama.config)
    rounded.load_state_dict(target_llama.state_dict())
    first = HuggingFaceModel(target_llama).fingerprint
    assert first == HuggingFaceModel(rounded.to(torch.bfloat16)).fingerprint
    assert first != HuggingFaceModel(draft_llama).fingerprint


def test_longest_text(target: HuggingFaceModel) -> None:
    assert target.max_length == 1024
    settings = {"vocab_size": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}
    assert HuggingFaceModel(GPT2LMHeadModel(GPT2Config(**settings, n_positions=32))).max_length == 32
    settings = {"vocab_size": 16, "hidden_size": 8, "n_layer": 1, "n_head": 2}
    assert max_positions(BloomForCausalLM(BloomConfig(**settings))) is None


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if "window" in name or "Gemma" in name])
@pytest.mark.parametrize("context", [1, 6, 7, 8, 9, 20])
def test_sliding_windows(architecture: str, context: int) -> None:
    """Below, at and past the window: trees, and single rows after a path that is not the first branch."""
    plain_model: Any = tiny_model(architecture)
    model = HuggingFaceModel(plain_model)
    prompt, tree = random_tokens(context), random_tokens(7, seed=1)
    prefill(model, prompt)
    logits = model.extend(torch.tensor(tree), PARENTS).logits
    for node in range(7):
        expected = plain(plain_model, prompt + [tree[row] for row in ancestors(node)])[0]
        torch.testing.assert_close(logits[node], expected, atol=1e-4, rtol=1e-4)
    model.keep(ancestors(5))
    committed = prompt + [tree[row] for row in ancestors(5)]
    for token in (3, 4):
        committed.append(token)
        row = model.extend(torch.tensor([token]), [-1]).logits[0]
        model.keep([0])
        torch.testing.assert_close(row, plain(plain_model, committed)[0], atol=1e-4, rtol=1e-4)


def test_padded_vocabularies() -> None:
    """Columns past the pair's vocabulary are cut; a draft with fewer rows has them as its support."""
    wide, whole = HuggingFaceModel(tiny_llama(vocab=70), vocab_size=64), HuggingFaceModel(tiny_llama(vocab=70))
    tokens, parents = torch.tensor([3, 5, 9]), [-1, 0, 0]
    assert torch.equal(wide.extend(tokens, parents).logits, whole.extend(tokens, parents).logits[:, :64])
    assert wide.support is None
    narrow = HuggingFaceModel(tiny_llama(vocab=64), vocab_size=70)
    assert narrow.support is not None
    assert narrow.support.tolist() == list(range(64))
    assert narrow.extend(torch.tensor([69]), [-1]).logits.shape == (1, 64), "a token that it does not have"


def test_caches_that_cannot_be_rolled_back() -> None:
    llama4 = Llama4TextConfig(num_hidden_layers=2, attention_chunk_size=4)
    with pytest.raises(UserError, match="model 'tiny' has a chunked_attention cache, which cannot"):
        sliding_window(llama4, "tiny")
    with pytest.raises(UserError, match="linear_attention"):
        sliding_window(Qwen3NextConfig(num_hidden_layers=4), "tiny")


def test_backend_without_tree_masks_is_refused(target_llama: LlamaForCausalLM) -> None:
    model = LlamaForCausalLM(target_llama.config)
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UserError, match="ignores tree masks"):
        HuggingFaceModel(model)
    model.config._attn_implementation = "sdpa"
