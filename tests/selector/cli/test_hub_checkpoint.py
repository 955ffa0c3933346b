"""`--checkpoint user/name`: fetched from the hub, with the pair that it names; or one sentence after one question."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch

from selector.cli.main import main
from selector.engine.huggingface import Pair, load_pair
from selector.hub import find_model
from selector.latency import LatencyProfile
from tests.support.disk_pair import save_pair
from tests.support.untrained import untrained_selector

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FLAGS = ["--pair.device", "cpu", "--pair.dtype", "float32"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return load_pair(save_pair(tmp_path_factory.mktemp("models")))


@pytest.fixture
def hub(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gives a selector of the pair as `me/selector`; the working directory is empty."""
    untrained_selector(pair, models=pair.names).save(tmp_path / "snapshot", "# Card\n")

    def snapshot_download(name: str, *, revision: str, **_: Any) -> str:
        assert (name, revision) == ("me/selector", COMMIT)
        return str(tmp_path / "snapshot")

    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    answer = SimpleNamespace(sha=COMMIT, card_data=None)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: answer)
    find_model.cache_clear()
    yield
    find_model.cache_clear()


def test_decoding(hub: None, pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["decode", "--checkpoint", "me/selector", *FLAGS, "--decode.max_new_tokens=8", "--prompt", "w7 w3"]) == 0
    )
    tokens = pair.encode("w7 w3")
    whole = pair.target.model.generate(torch.tensor([tokens]), do_sample=False, max_new_tokens=8, pad_token_id=0)
    assert capsys.readouterr().out.split() == pair.decode(whole[0, len(tokens) :].tolist()).split()


def test_the_bench(hub: None, pair: Pair, prompt_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps of its selector; the pair is the one that it names."""
    given = ["--prompts", f"[{prompt_file}]", "--generate.chat_template", "false", "--steps", "3", "--texts", "1"]
    flags = [*FLAGS, *given, "--profile", "profile.json", "--decode.max_new_tokens", "8"]
    LatencyProfile.from_dict(untrained_selector(pair).config.profile).save("profile.json")
    assert main(["bench", "decode", "--checkpoint", "me/selector", *flags, "--assisted", "false"]) == 0
    assert "naive selector" in capsys.readouterr().out


@pytest.mark.parametrize("verb", [["decode", "--prompt", "w7"], ["bench", "decode"]])
def test_without_a_hub_it_is_one_sentence_after_one_question(
    verb: list[str], hub: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def model_info(_: Any, name: str, *, revision: str | None, timeout: float) -> None:
        asked.append((name, revision))
        assert timeout <= 5
        raise ConnectionError("no route to the hub\nand more")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    assert main([*verb, "--checkpoint", "me/absent"]) == 2
    assert asked == [("me/absent", None)]
    (line,) = capsys.readouterr().err.splitlines()
    assert "checkpoint is 'me/absent': it is no folder, the hub cannot be reached (no route to the hub)" in line
