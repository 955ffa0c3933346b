"""Fixtures of the whole suite: tiny models, prompts on disk, profiles of two imagined machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from selector.decoding.sequence import SpeculativeSequence
from selector.engine.huggingface import HuggingFaceModel
from selector.latency import LatencyProfile
from tests.support.evaluation_worlds import make_flat_profile, make_profile

torch.set_num_threads(1)


def tiny_llama(
    seed: int = 0, layers: int = 2, vocab: int = 64, scale: float = 3.0, **changes: object
) -> LlamaForCausalLM:
    """A random Llama in float32. `scale` sharpens its head, so that laws are far from flat."""
    torch.manual_seed(seed)
    settings = {
        "vocab_size": vocab, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024,
        "initializer_range": 0.3, "eos_token_id": None, "bos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(**(settings | changes)))
    with torch.no_grad():
        model.lm_head.weight.mul_(scale)
    return model.eval()


@pytest.fixture(scope="session")
def target_llama() -> LlamaForCausalLM:
    return tiny_llama()


@pytest.fixture(scope="session")
def draft_llama(target_llama: LlamaForCausalLM) -> LlamaForCausalLM:
    """The target with disturbed weights: it often agrees."""
    draft = tiny_llama()
    torch.manual_seed(7)
    with torch.no_grad():
        for weight in draft.parameters():
            weight.add_(0.1 * weight.std() * torch.randn_like(weight))
    return draft


@pytest.fixture
def target(target_llama: LlamaForCausalLM) -> HuggingFaceModel:
    return HuggingFaceModel(target_llama)


@pytest.fixture
def draft(draft_llama: LlamaForCausalLM) -> HuggingFaceModel:
    return HuggingFaceModel(draft_llama)


@pytest.fixture
def sequences(monkeypatch: pytest.MonkeyPatch) -> list[SpeculativeSequence]:
    """All sequences that decoding starts while a test runs, the latest last."""
    started: list[SpeculativeSequence] = []
    begin = SpeculativeSequence.__init__

    def recorded(self: SpeculativeSequence, *arguments: Any) -> None:
        begin(self, *arguments)
        started.append(self)

    monkeypatch.setattr(SpeculativeSequence, "__init__", recorded)
    return started


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU and, in `make test-gpu`, a CUDA device."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@pytest.fixture
def profile() -> LatencyProfile:
    return make_profile()


@pytest.fixture
def flat_profile() -> LatencyProfile:
    return make_flat_profile()


@pytest.fixture
def prompt_file(tmp_path: Path) -> str:
    """Six prompts of two tasks."""
    path = tmp_path / "six.jsonl"
    lines = [
        {"id": f"{task}-{i}", "task": task, "messages": [{"role": "user", "content": f"{task} text {i * i}"}]}
        for task in ("writing", "coding")
        for i in range(3)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return str(path)
