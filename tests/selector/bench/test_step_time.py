"""The step benchmark: both arms run real models, and the rows say which was faster by how much."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from selector.bench import step_time as step_bench
from selector.bench.step_time import STEP_SECTIONS, step_rows
from selector.cli.main import main
from selector.config import PairConfig
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.cpu.packed_linear import PackedLinear
from selector.engine.huggingface import Pair
from tests.support.tiny_models import tiny_llama


class Words:
    """One token a word: its length modulo 8."""

    chat_template = None

    def __call__(self, text: str) -> Any:
        return SimpleNamespace(input_ids=[len(word) % 8 for word in text.split()])

    def decode(self, tokens: list[int], **_: Any) -> str:
        return " ".join(map(str, tokens))


def tiny_pair() -> Pair:
    tokenizer: Any = Words()
    models = [HuggingFaceModel(tiny_llama(seed=seed)) for seed in (0, 1)]
    return Pair(*models, tokenizer, (), torch.float32, PairConfig())


def packs(model: HuggingFaceModel) -> bool:
    return any(isinstance(layer, PackedLinear) for layer in model._forward._passes.model.modules())


def test_both_arms_decode_and_the_rows_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = tiny_pair()
    monkeypatch.setattr(step_bench, "load_pair", lambda _: pair)
    config, file = tmp_path / "config.yaml", tmp_path / "rows.json"
    config.write_text("generate: {chat_template: false}\n")
    flags = ["--config", str(config), "--prompts-per-task", "1", "--decode.max_new_tokens", "5", "--json", str(file)]
    assert main(["bench", "step", *flags]) == 0
    rows = json.loads(file.read_text())
    assert [row["section"] for row in rows][-1] == "step"
    assert {"draft", "target", "verify"} <= {row["section"] for row in rows} <= {*STEP_SECTIONS, "step"}
    assert all(row["low"] <= row["ratio"] <= row["high"] for row in rows)


def test_only_the_first_arm_has_its_layers_as_loaded() -> None:
    pair = tiny_pair()
    loaded = step_bench._as_loaded(pair)
    assert [packs(model) for model in (loaded.target, loaded.draft, pair.target, pair.draft)] == [False] * 2 + [
        True
    ] * 2
    assert loaded.target.model is pair.target.model


def test_rows_are_ratios_of_means_with_paired_intervals() -> None:
    packed = np.random.default_rng(0).uniform(1, 9, (30, len(STEP_SECTIONS)))
    packed[:, STEP_SECTIONS.index("selector")] = 0
    rows = step_rows(np.stack([2 * packed, packed]), resamples=200, level=0.95)
    assert "selector" not in {row["section"] for row in rows}
    for row in rows:
        assert row["ratio"] == pytest.approx(2)
        assert (row["low"], row["high"]) == pytest.approx((2, 2))
        assert row["transformers_ms"] == pytest.approx(2 * row["ddte_ms"])
    assert rows[-1]["ddte_ms"] == pytest.approx(sum(row["ddte_ms"] for row in rows[:-1]))


def test_an_unknown_tree_is_refused_before_models_are_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_bench, "load_pair", None)
    assert main(["bench", "step", "--static", "two"]) == 2
    assert "two" in capsys.readouterr().err
