"""Losslessness of every supported architecture, and the support table that says so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import selector.engine
from selector.engine.causal_model import HuggingFaceModel
from selector.losslessness.check_pair import check_pair
from selector.losslessness.finding import CAUGHT, IDENTICAL, NEAR_TIE, OK
from tests.support.tiny_models import ARCHITECTURES, WINDOW, disturbed, tiny_model

PROMPTS = [[5, 9, 33, 2, 60], [7, 8], [11, 12, 50]]
TABLE = (Path(selector.engine.__file__).parent / "README.md").read_text()


def tiny_pair(architecture: str, dtype: torch.dtype, device: str = "cpu") -> Any:
    target = tiny_model(architecture)
    models = [HuggingFaceModel(model.to(device, dtype)) for model in (target, disturbed(target))]
    return SimpleNamespace(target=models[0], draft=models[1], end_ids=(), decode=str)


def row(architecture: str, model: Any) -> str:
    head = "tied" if model.config.tie_word_embeddings else "untied"
    sliding = HuggingFaceModel(model)._window is not None
    limit = "masked, all rows cached" if sliding else "none"
    return f"| {architecture} | `{type(model).__name__}` | {head} | {limit} |"


DTYPES = ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)]  # slow where it is no native type


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_lossless(architecture: str, dtype: str) -> None:
    """Texts are longer than the sliding windows."""
    assert WINDOW < 24
    findings = check_pair(tiny_pair(architecture, getattr(torch, dtype)), PROMPTS, tokens=24, texts=100)
    assert all(finding.passed for finding in findings), [finding for finding in findings if not finding.passed]
    verdicts = {
        name: {f.verdict for f in findings if f.check == name} for name in dict.fromkeys(f.check for f in findings)
    }
    assert verdicts.pop("greedy text") <= ({IDENTICAL} if dtype == "float32" else {IDENTICAL, NEAR_TIE})
    assert verdicts.pop("control") == {CAUGHT}
    assert verdicts == {name: {OK} for name in ("vocabulary", "tree logits", "cache", "sampled distribution")}
    assert row(architecture, tiny_model(architecture)) in TABLE, row(architecture, tiny_model(architecture))


def test_the_table_names_no_other_architecture() -> None:
    lines = [line for line in TABLE.splitlines() if line.startswith("| ") and "`" in line]
    assert [line.split("|")[1].strip() for line in lines] == list(ARCHITECTURES)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_lossless_on_a_gpu(architecture: str, dtype: str) -> None:
    findings = check_pair(tiny_pair(architecture, getattr(torch, dtype), "cuda"), PROMPTS, tokens=24, texts=100)
    assert all(finding.passed for finding in findings), [finding for finding in findings if not finding.passed]
