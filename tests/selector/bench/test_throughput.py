"""The bench: rows, failures, and a verdict in plain words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from selector.bench.throughput import bench_decode, verdict
from selector.decoding.decoder import Decoder
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.trees.expansion import Expansion


def test_rows(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    pair: Any = SimpleNamespace(target=target, draft=draft, end_ids=(), decode=str)

    class Broken:
        def choose(self, root: Any) -> Expansion:
            raise RuntimeError("no tree today\nsecond line")

    decoders = {
        "tree": Decoder(pair, "specinfer", Expansion(2, 0, 3)),
        "broken": Decoder(pair, "nss", Broken()),
    }
    shares: list[float] = []
    prompts = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    rows = bench_decode(pair, decoders, prompts, [Sampling(0.0), Sampling(1.0)], 12, progress=shares.append)
    assert [row["arm"] for row in rows] == ["plain", "assisted", "tree", "broken"]
    plain, assisted, tree, broken = rows
    assert plain["ratio_to_plain"] == pytest.approx(1)
    assert plain["low"] == pytest.approx(plain["high"]) == pytest.approx(1)
    assert tree["low"] <= tree["ratio_to_plain"] <= tree["high"]
    assert tree["block_efficiency"] >= 1
    assert 0 < tree["overhead_share"] < 1
    assert tree["verifier"] == "specinfer"
    assert [row["different_texts"] for row in rows] == [0, 0, 0, 0]
    assert [row["failures"] for row in rows] == [0, 0, 0, 6]
    assert broken["errors"] == ["RuntimeError: no tree today"]
    assert broken["ratio_to_plain"] is None
    assert assisted["tokens_per_second"] > 0
    assert shares[-1] == 1.0


def test_a_selector_is_compared_with_its_static_tree(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    pair: Any = SimpleNamespace(target=target, draft=draft, end_ids=(), decode=str)
    decoders = {name: Decoder(pair, "nss", Expansion(1, 2, 0)) for name in ("selector", "static")}
    against = {"selector": "static", "static": "no such arm"}
    prompts = [[1, 2], [3, 4, 5]]
    plain, selector, static = bench_decode(pair, decoders, prompts, [Sampling(1.0)], 8, against=against, assisted=False)
    assert selector["against"] == "static"
    assert selector["ratio_to_static"] == pytest.approx(selector["tokens_per_second"] / static["tokens_per_second"])
    assert selector["static_low"] <= selector["ratio_to_static"] <= selector["static_high"]
    assert not [row for row in (plain, static) if "ratio_to_static" in row]


@pytest.mark.parametrize(
    ("ratio", "low", "words"), [(0.9, 0.8, "slower"), (1.1, 0.9, "No arm is surely faster"), (2.0, 1.8, "fastest")]
)
def test_verdict(ratio: float, low: float, words: str) -> None:
    plain = {"arm": "plain", "ratio_to_plain": 1.0, "low": 1.0, "high": 1.0}
    assert words in verdict([plain, {"arm": "tree", "ratio_to_plain": ratio, "low": low, "high": ratio + 0.1}])
