"""Models of the hub without a hub: one question, and what is said where nobody answers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from selector import hub
from selector.config import PairConfig
from selector.engine.huggingface import load_pair
from selector.errors import UserError

MODEL, COMMIT = "someone/model", "0123456789abcdef0123456789abcdef01234567"
PAIR = PairConfig(target=MODEL, draft="someone/draft", device="cpu")


@pytest.fixture(autouse=True)
def _no_memory() -> Iterator[None]:
    hub.find_model.cache_clear()
    yield
    hub.find_model.cache_clear()


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What the hub is asked; nobody answers."""
    asked: list[tuple[str, Any]] = []

    def model_info(self: HfApi, source: str, *, revision: str | None, timeout: float) -> None:
        asked.append((source, revision))
        assert timeout <= 5
        raise ConnectionError("no route to the hub\nand more")

    monkeypatch.setattr(HfApi, "model_info", model_info)
    return asked


def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that holds a configuration of MODEL."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    files = folder / "models--someone--model"
    (files / "snapshots" / COMMIT).mkdir(parents=True)
    (files / "snapshots" / COMMIT / "config.json").write_text("{}")
    (files / "refs").mkdir()
    (files / "refs" / "main").write_text(COMMIT)


def test_offline_a_missing_model_is_one_sentence_after_one_question(questions: list[tuple[str, Any]]) -> None:
    with pytest.raises(UserError) as caught:
        load_pair(PAIR)
    assert questions == [(MODEL, None)]
    text = str(caught.value)
    assert text.startswith("target is 'someone/model': ")
    assert "no route to the hub" in text
    assert "\n" not in text


def test_what_the_cache_holds_needs_no_hub(
    questions: list[tuple[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache(tmp_path, monkeypatch)
    assert hub.find_model("target", MODEL) == hub.HubModel(COMMIT, cached=True)
    assert hub.find_model("target", MODEL) == hub.HubModel(COMMIT, cached=True)
    assert questions == [(MODEL, None)]
    assert hub.config_file("target", MODEL).read_text() == "{}"
    with pytest.raises(UserError, match="someone/model@v2"):
        hub.find_model("target", MODEL, "v2")


@pytest.mark.parametrize("kind", [GatedRepoError, RepositoryNotFoundError])
def test_models_that_the_hub_refuses(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def model_info(*_: Any, **__: Any) -> None:
        raise kind("403: ask for access\nrequest id", response=SimpleNamespace(headers={}, request=None))

    monkeypatch.setattr(HfApi, "model_info", model_info)
    with pytest.raises(UserError, match=r"which the hub does not give .*hf auth login"):
        load_pair(PAIR)


def test_all_files_are_of_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    card = {"license": "apache-2.0", "base_model": ["someone/base"]}
    answer = SimpleNamespace(sha=COMMIT, card_data=card)
    monkeypatch.setattr(HfApi, "model_info", lambda *_, **__: answer)
    found = hub.find_model("target", MODEL, "v1")
    assert found == hub.HubModel(COMMIT, False, "apache-2.0", ("someone/base",))
    assert found.options == {"revision": COMMIT, "local_files_only": False}
