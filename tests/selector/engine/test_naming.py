"""What a loaded pair says of itself, from cards of folders, from the hub's answer, and where neither is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi
from transformers import PreTrainedModel

from selector.config import PairConfig
from selector.engine.huggingface import load_pair
from selector.engine.naming import pair_names
from selector.hub import card_facts, find_model, read_card
from selector.pair_names import EMBEDDED, ModelName, PairNames
from tests.support.disk_pair import save_pair

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _no_memory() -> Iterator[None]:
    find_model.cache_clear()
    yield
    find_model.cache_clear()


def model(commit: str | None = None) -> Any:
    return SimpleNamespace(config=SimpleNamespace(_commit_hash=commit), dtype="torch.float32")


def test_a_pair_of_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_pair(tmp_path)
    (tmp_path / "target" / "README.md").write_text("---\nlicense: mit\nbase_model: [a/b, c/d]\n---\n\n# A model\n")
    monkeypatch.chdir(tmp_path)
    names = load_pair(PairConfig("target", "draft", dtype="float32", device="cpu", threads=1)).names
    assert names == PairNames(
        ModelName(str(tmp_path / "target"), "", "mit", ("a/b", "c/d")), ModelName(str(tmp_path / "draft")),
        dtype="float32",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("", ("", ())),
        ("# No metadata\n", ("", ())),
        ("---\n: [\n---\n", ("", ())),
        ("---\n- a\n---\n", ("", ())),
        ("---\nlicense: other\nlicense_name: llama3\nbase_model: a/b\n---\n", ("other: llama3", ("a/b",))),
        ("---\nlicense: [mit, apache-2.0]\n---\n", ("mit, apache-2.0", ())),
    ],
)
def test_facts_of_cards(card: str, expected: tuple[str, tuple[str, ...]], tmp_path: Path) -> None:
    if card:
        (tmp_path / "README.md").write_text(card)
    assert card_facts(read_card(tmp_path)) == expected


def test_hub_models_have_the_commit_that_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(sha=COMMIT, card_data={"license": "apache-2.0", "base_model": "a/base"})
    monkeypatch.setattr(HfApi, "model_info", lambda *_, **__: answer)
    names = pair_names(PairConfig("a/target", "a/draft", revision="v1"), model(), model("f" * 40))
    assert names.target == ModelName("a/target", COMMIT, "apache-2.0", ("a/base",))
    assert names.draft == ModelName("a/draft", "f" * 40, "apache-2.0", ("a/base",))


def test_nothing_is_guessed_of_a_model_that_was_handed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def model_info(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(HfApi, "model_info", model_info)
    names = pair_names(PairConfig("a/target", ""), model("f" * 40), model())
    assert names == PairNames(ModelName("a/target", "f" * 40), ModelName(), dtype="float32")
    assert pair_names(PairConfig("a/target", "", revision="v1"), model(), model()).target == ModelName("a/target", "v1")


def test_the_embedded_pair(target_llama: PreTrainedModel) -> None:
    names = pair_names(PairConfig(), target_llama, target_llama)
    assert names.target == EMBEDDED
    assert names.draft == ModelName(PairConfig.draft, "", "apache-2.0", EMBEDDED.base_model)
    assert names.licence == "apache-2.0"
