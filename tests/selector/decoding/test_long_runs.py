"""Caches after rejections, and long runs: right lengths, flat memory, the text of plain `generate`."""

from __future__ import annotations

import gc
import os
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from selector.decoding.decoder import Decoder
from selector.decoding.sequence import SpeculativeSequence
from selector.engine.causal_model import HuggingFaceModel
from selector.trees.expansion import Expansion
from tests.support.tiny_models import tiny_llama

MEGABYTE = 2**20
PAGE = os.sysconf("SC_PAGE_SIZE")


def contrary_pair() -> Any:
    """A draft that likes best what its twin, the target, likes least: no greedy node is ever accepted."""
    target, draft = tiny_llama(), tiny_llama()
    with torch.no_grad():
        draft.lm_head.weight.neg_()
    return SimpleNamespace(target=HuggingFaceModel(target), draft=HuggingFaceModel(draft), end_ids=(), decode=str)


def rows_built_one_by_one(model: Any, tokens: list[int]) -> list[torch.Tensor]:
    """Keys of each layer after one pass a token in a new cache, `[1, heads, rows, width]`."""
    fresh = HuggingFaceModel(model)
    for token in tokens:
        fresh.extend(torch.tensor([token]), [-1])
        fresh.keep([0])
    return keys_of(fresh)


def keys_of(model: HuggingFaceModel) -> list[torch.Tensor]:
    layers: list[Any] = model._cache.layers
    return [layer.key_buffer.data[layer.key_slot, :, : model.length] for layer in layers]


@pytest.mark.parametrize("expansion", [Expansion(1, 0, 1), Expansion(1, 0, 4), Expansion(3, 0, 2), Expansion(2, 2, 2)])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 128, 129])
def test_rejection_at_the_first_node(expansion: Expansion, length: int, sequences: list[SpeculativeSequence]) -> None:
    pair = contrary_pair()
    committed = [7 * place % 64 for place in range(length)]
    decoder = Decoder(pair, "specinfer", expansion)
    expected = pair.target.model.generate(torch.tensor([committed]), max_new_tokens=6, do_sample=False)[0].tolist()
    for step in decoder.stream(committed.copy(), max_new_tokens=6):
        assert len(step.tokens) == 1
        committed += step.tokens
        if step.finish is None:
            assert sequences[-1].target.length == sequences[-1].draft.length == len(committed) - 1
    assert committed == expected
    for model in (sequences[-1].target, sequences[-1].draft):
        assert isinstance(model, HuggingFaceModel)
        for kept, built in zip(
            keys_of(model), rows_built_one_by_one(model.model, committed[: model.length]), strict=True
        ):
            torch.testing.assert_close(kept, built, atol=1e-4, rtol=1e-4)


def resident() -> int:
    """Bytes of memory in use by this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def large_pair() -> Any:
    """Tiny models with positions for long texts; the draft often agrees."""
    target, draft = (tiny_llama(max_position_embeddings=8192) for _ in range(2))
    torch.manual_seed(7)
    with torch.no_grad():
        for weight in draft.parameters():
            weight.add_(0.1 * weight.std() * torch.randn_like(weight))
    return SimpleNamespace(target=HuggingFaceModel(target), draft=HuggingFaceModel(draft), end_ids=(), decode=str)


@pytest.mark.slow
def test_two_thousand_tokens_to_a_context_of_four_thousand(sequences: list[SpeculativeSequence]) -> None:
    pair, count = large_pair(), 2000
    prompt = torch.randint(0, 64, (2000,), generator=torch.Generator().manual_seed(0)).tolist()
    expected = pair.target.model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False)
    text = expected[0, 2000:].tolist()
    decoder = Decoder(pair, "specinfer", Expansion(3, 1, 2))
    tokens: list[int] = []
    marks: dict[int, int] = {}
    tracemalloc.start()
    for step in decoder.stream(prompt, max_new_tokens=count):
        tokens += step.tokens
        if step.finish is None:
            running = sequences[-1]
            assert running.target.length == 2000 + len(tokens) - 1
            assert running.draft.length in (running.target.length, running.target.length - 1)
        marks[len(tokens)] = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    early = max(size for length, size in marks.items() if 200 < length < 500)
    late = max(size for length, size in marks.items() if length > 1700)
    assert late - early < MEGABYTE / 4, "Python objects of past steps are kept"
    models: list[Any] = [running.target, running.draft]
    capacities = [buffer.data.shape[2] for model in models for buffer in model._cache.buffers]
    assert max(capacities) <= 2 * 4096
    assert tokens == text


@pytest.mark.slow
def test_two_hundred_prompts_in_a_row(sequences: list[SpeculativeSequence]) -> None:
    pair = large_pair()
    decoder = Decoder(pair, "traversal", Expansion(3, 1, 2))
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 400, (200,), generator=generator).tolist()
    lengths[5] = 400  # the longest comes early, so that buffers have grown before memory is compared
    sizes, objects = [], []
    tracemalloc.start()
    for length in lengths:
        prompt = torch.randint(0, 64, (length,), generator=generator).tolist()
        generation = decoder.generate(prompt, 24)
        assert len(generation.tokens) == 24
        assert sequences.pop().target.length <= length + 24
        del generation
        gc.collect()
        sizes.append(resident())
        objects.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(objects[-20:]) - max(objects[20:40]) < MEGABYTE / 10
    assert max(sizes[-20:]) - max(sizes[20:40]) < 16 * MEGABYTE
    again = decoder.generate([1, 2, 3], 24).tokens
    assert again == Decoder(large_pair(), "traversal", Expansion(3, 1, 2)).generate([1, 2, 3], 24).tokens
