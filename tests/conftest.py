"""Fixtures of the whole suite: tiny models, prompts on disk, profiles of two imagined machines."""

from __future__ import annotations

import tests.support.shapes  # noqa: F401  first, as it checks what is imported after it

# isort: split
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from selector.decoding.sequence import SpeculativeSequence
from selector.engine.huggingface import HuggingFaceModel
from selector.latency import LatencyProfile
from tests.support.profiles import make_flat_profile, make_profile
from tests.support.tiny_models import disturbed, tiny_llama

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pass times of tiny pairs are kept for a session and no longer; slow tests take the user's unpacked target."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setenv("DDTE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def target_llama() -> PreTrainedModel:
    return tiny_llama()


@pytest.fixture(scope="session")
def draft_llama(target_llama: PreTrainedModel) -> PreTrainedModel:
    """The target with disturbed weights: it often agrees."""
    return disturbed(target_llama, 0.1)


@pytest.fixture
def target(target_llama: PreTrainedModel) -> HuggingFaceModel:
    return HuggingFaceModel(target_llama)


@pytest.fixture
def draft(draft_llama: PreTrainedModel) -> HuggingFaceModel:
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
