"""Checkpoints on the hub: whatever reaches the hub's client, and what it gives back, without a network."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import ModelCard

from selector.errors import UserError
from selector.hub import find_model
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.hub import is_repository
from selector.pair_names import ModelName, PairNames
from selector.shipped import SELECTOR, find

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODELS = ["HuggingFaceTB/SmolLM2-135M-Instruct", "me/draft"]


class Hub:
    """Stands for the hub: keeps what is uploaded, gives it back by `snapshot_download`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, list[Any]()

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> str:
        self.calls.append((repo_id, private, exist_ok))
        return f"https://hub/{repo_id}"

    def upload_folder(self, *, repo_id: str, folder_path: Path, allow_patterns: list[str]) -> None:
        kept = {path for pattern in allow_patterns for path in folder_path.glob(pattern)}
        assert kept == {path for path in folder_path.rglob("*") if path.is_file()}
        shutil.copytree(folder_path, self.folder / repo_id)

    def model_info(self, repo_id: str, *, revision: str | None, timeout: float) -> SimpleNamespace:
        self.calls.append((repo_id, revision))
        if not (self.folder / repo_id).is_dir():
            raise ConnectionError(f"no {repo_id}\nand more lines")
        return SimpleNamespace(sha=COMMIT, card_data=None)

    def snapshot_download(
        self, repo_id: str, *, revision: str, local_files_only: bool, allow_patterns: list[str]
    ) -> str:
        assert (revision, local_files_only) == (COMMIT, False)
        if (self.folder / repo_id / "gone").exists():
            raise huggingface_hub.errors.LocalEntryNotFoundError(f"no {repo_id}\nand more lines")
        return str(self.folder / repo_id)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    find_model.cache_clear()
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    return hub


def test_what_is_published_comes_back(hub: Hub) -> None:
    shipped = SelectorCheckpoint.from_pretrained(SELECTOR)
    address = shipped.push_to_hub("me/selector", base_model=MODELS, license="apache-2.0", datasets=["me/roots"])
    assert address == "https://hub/me/selector"
    assert hub.calls == [("me/selector", False, True)]
    again = SelectorCheckpoint.from_pretrained("me/selector", revision="v1")
    assert hub.calls[1:] == [("me/selector", "v1")]
    assert again.config == shipped.config
    for name, tensor in shipped.network.state_dict().items():
        assert torch.equal(tensor, again.network.state_dict()[name])


def test_the_card_has_what_the_hub_shows(hub: Hub) -> None:
    shipped = SelectorCheckpoint.from_pretrained(SELECTOR)
    shipped.push_to_hub("me/selector", base_model=MODELS[0], license="apache-2.0", datasets=["me/roots"], private=True)
    card = ModelCard.load(hub.folder / "me" / "selector" / "README.md")
    assert hub.calls == [("me/selector", True, True)]
    assert card.data.base_model == MODELS[:1]
    assert card.data.license == "apache-2.0"
    assert card.data.datasets == ["me/roots"]
    assert card.data.library_name == "ddte"
    assert "speculative-decoding" in card.data.tags
    assert card.data.model_name == "selector"
    (result,) = [result for result in card.data.eval_results if result.dataset_split == "validation"]
    assert result.metric_value == pytest.approx(shipped.config.metrics["validation_ratio_to_static"])
    assert card.text.strip() == ModelCard(shipped.card).text.strip()


def test_what_a_checkpoint_knows_of_its_models_need_not_be_given(hub: Hub, tmp_path: Path) -> None:
    shipped = SelectorCheckpoint.load(SELECTOR)
    unnamed = SelectorCheckpoint(shipped.network, replace(shipped.config, models=PairNames()), shipped.card)
    for given, field in (({"license": "mit"}, "base_model"), ({"base_model": "a/b"}, "license")):
        with pytest.raises(UserError, match=f"{field} is left out"):
            unnamed.push_to_hub("me/selector", **given)
    assert hub.calls == []
    names = PairNames(ModelName("a/target", licence="mit"), ModelName("a/draft", licence="mit"))
    named = SelectorCheckpoint(shipped.network, replace(shipped.config, models=names), shipped.card)
    named.push_to_hub("me/selector")
    data = ModelCard.load(hub.folder / "me" / "selector" / "README.md").data
    assert (data.base_model, data.license, data.datasets) == (["a/target", "a/draft"], "mit", None)
    shipped.push_to_hub("me/shipped")
    data = ModelCard.load(hub.folder / "me" / "shipped" / "README.md").data
    assert (data.base_model, data.license) == (["HuggingFaceTB/SmolLM2-135M-Instruct"], "apache-2.0")
    named.push_to_hub("me/other", license="other: mine", hub_code=True)
    assert (hub.folder / "me" / "other" / "custom_generate" / "generate.py").exists()
    data = ModelCard.load(hub.folder / "me" / "other" / "README.md").data
    assert (data.license, data.license_name) == ("other", "mine")


def test_a_folder_is_never_asked_for_at_the_hub(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(find(SELECTOR), tmp_path / "me" / "selector")
    monkeypatch.chdir(tmp_path)
    assert SelectorCheckpoint.from_pretrained("me/selector").config.verifier == "traversal"
    assert SelectorCheckpoint.from_pretrained(tmp_path / "me" / "selector").config.verifier == "traversal"
    for name in ("absent", "/absent/selector", "./absent", "a/b/c", "~/selector"):
        assert not is_repository(name)
        with pytest.raises(UserError, match=name.rpartition("/")[2]):
            SelectorCheckpoint.from_pretrained(name)
    assert hub.calls == []


def test_what_the_hub_does_not_give_is_one_sentence(hub: Hub) -> None:
    with pytest.raises(UserError, match=r"^checkpoint is 'me/absent': .*\(no me/absent\).*give a folder\.$"):
        SelectorCheckpoint.from_pretrained("me/absent")
    assert hub.calls == [("me/absent", None)]
    (hub.folder / "me" / "half" / "gone").mkdir(parents=True)
    with pytest.raises(UserError, match=r"^checkpoint is 'me/half', whose files .*\(no me/half\).*export`\.$"):
        SelectorCheckpoint.from_pretrained("me/half")


REFUSALS = [PermissionError("log in first"), ValueError("a name"), RuntimeError("no network")]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
def test_nothing_is_published_without_a_card_or_a_right(
    refusal: Exception, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = SelectorCheckpoint.from_pretrained(SELECTOR)
    bare = SelectorCheckpoint(shipped.network, shipped.config)
    with pytest.raises(UserError, match="checkpoint has no card"):
        bare.push_to_hub("me/selector", base_model=MODELS, license="apache-2.0")
    assert hub.calls == []

    def refuse(*_: Any, **__: Any) -> str:
        raise refusal

    monkeypatch.setattr(hub, "create_repo", refuse)
    with pytest.raises(UserError, match=rf"repo_id is 'me/selector'.*\({refusal}\)"):
        shipped.push_to_hub("me/selector", base_model=MODELS, license="apache-2.0")
    assert not hub.folder.exists()
