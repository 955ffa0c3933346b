"""A checkpoint's own code: `generate(custom_generate="FOLDER", trust_remote_code=True)` decodes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from transformers import AutoModelForCausalLM, dynamic_module_utils

from selector.engine.huggingface import Pair, load_pair
from selector.errors import UserError
from selector.hub import find_model
from tests.support.disk_pair import save_pair
from tests.support.untrained import untrained_selector

PROMPT = torch.tensor([[7, 3, 11]])
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Two folders; their absolute names are what the checkpoint knows of them."""
    return load_pair(save_pair(tmp_path_factory.mktemp("models")))


@pytest.fixture
def model(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The target as a user loads it, in an empty folder; copies of code go there too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    return AutoModelForCausalLM.from_pretrained(pair.config.target, dtype=torch.float32)


def save(pair: Pair, folder: Path, **changes: Any) -> None:
    checkpoint = untrained_selector(pair, **{"models": pair.names} | changes)
    checkpoint.save(folder, "# Card\n", hub_code=True)


def test_a_folder_decodes_as_the_model_does(pair: Pair, model: Any, tmp_path: Path) -> None:
    save(pair, tmp_path / "own" / "naive")
    given = {"max_new_tokens": 30, "trust_remote_code": True}
    expected = model.generate(PROMPT, max_new_tokens=30).tolist()
    for folder in (str(tmp_path / "own" / "naive"), "own/naive"):
        output = model.generate(PROMPT, custom_generate=folder, return_dict_in_generate=True, **given)
        assert output.sequences.tolist() == expected
        assert output.stats.policy == "the selector's regressor head"
    fixed = model.generate(
        PROMPT, custom_generate="own/naive", expansion=(2, 0, 1), return_dict_in_generate=True, **given
    )
    assert max(fixed.stats.actions, key=fixed.stats.actions.get) == (2, 0, 1)
    with pytest.raises(ValueError, match="trust_remote_code"):
        model.generate(PROMPT, custom_generate="own/naive", max_new_tokens=30, trust_remote_code=False)


def test_streamers_and_refusals(pair: Pair, model: Any, tmp_path: Path) -> None:
    save(pair, tmp_path / "naive")
    given = {"custom_generate": "naive", "trust_remote_code": True, "max_new_tokens": 30}
    put: list[int] = []

    class Streamer:
        def put(self, tokens: torch.Tensor) -> None:
            put.extend(tokens.flatten().tolist())

        def end(self) -> None:
            put.append(-1)

    text = model.generate(PROMPT, streamer=Streamer(), **given)[0].tolist()
    assert put == [*text, -1]
    with pytest.raises(UserError, match=r"repetition_penalty is 1\.3"):
        model.generate(PROMPT, repetition_penalty=1.3, **given)


def test_folders_of_one_name_are_told_apart(pair: Pair, model: Any, tmp_path: Path) -> None:
    """transformers runs one copy of equal files: the folder is not where the code runs."""
    save(pair, tmp_path / "first" / "naive")
    save(pair, tmp_path / "other" / "naive", target_fingerprint="other")
    given = {"trust_remote_code": True, "max_new_tokens": 5}
    model.generate(PROMPT, custom_generate="first/naive", **given)
    with pytest.raises(UserError, match="another target model"):
        model.generate(PROMPT, custom_generate="other/naive", **given)
    model.generate(PROMPT, custom_generate="first/naive", **given)


def test_a_repository_of_the_hub(pair: Pair, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the hub's own cache, without a hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    find_model.cache_clear()
    files = tmp_path / "cache" / "models--me--selector"
    (files / "refs").mkdir(parents=True)
    (files / "refs" / "main").write_text(COMMIT)
    save(pair, files / "snapshots" / COMMIT)
    given = {"custom_generate": "me/selector", "trust_remote_code": True, "max_new_tokens": 30}
    output = model.generate(PROMPT, return_dict_in_generate=True, **given)
    assert output.sequences.tolist() == model.generate(PROMPT, max_new_tokens=30).tolist()
    assert output.stats.policy == "the selector's regressor head"
    assert model.generate(PROMPT, revision=COMMIT, **given).tolist() == output.sequences.tolist()
