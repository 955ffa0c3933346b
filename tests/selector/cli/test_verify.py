"""`ddte verify --config`: exit code 0 and a table for a sound pair, 1 for a broken decoder and for a blind check."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from selector.cli.main import main
from selector.losslessness import check_pair
from selector.losslessness.broken_decoders import AlwaysAccept
from selector.trees.verifiers import get_verifier
from tests.support.disk_pair import save_pair

PROMPTS = ("w3 w9 w17", "w1 w2", "w30")  # words that the tiny pair's tokenizer knows


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    (folder / "pair.yaml").write_text(yaml.safe_dump({"pair": asdict(save_pair(folder))}))
    return folder / "pair.yaml"


def run(config: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(check_pair, "PROMPTS", PROMPTS)
    monkeypatch.setenv("COLUMNS", "200")
    return main(["verify", "--config", str(config), "--tokens", "8", "--texts", "100"])


def test_a_sound_pair(config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(config, monkeypatch) == 0
    out = capsys.readouterr().out
    for check, count in {"vocabulary": 1, "greedy text": 3, "sampled distribution": 1, "control": 4}.items():
        assert sum(line.strip().startswith(check) for line in out.splitlines()) == count
    assert out.count("caught") == 4
    assert "Decoding is lossless here" in out


def test_a_broken_decoder(config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_pair, "get_verifier", lambda name: AlwaysAccept())
    assert run(config, monkeypatch) == 1
    out = capsys.readouterr().out
    assert out.count("divergent") >= 2  # greedy texts and the sampled law
    assert "not lossless here: " in out


def test_blind_checks(config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is broken on purpose is sound by mistake: no check can see it, and each says so."""

    def sound(engine: Any) -> Any:
        return engine

    monkeypatch.setattr(check_pair, "WrongPositions", sound)
    monkeypatch.setattr(check_pair, "KeptRows", sound)
    monkeypatch.setattr(check_pair, "AlwaysAccept", lambda: get_verifier("traversal"))
    assert run(config, monkeypatch) == 1
    out = capsys.readouterr().out
    assert out.count("blind") == 4
    assert "shows nothing" in out


@pytest.mark.parametrize("both", [True, False])
def test_cases_and_config_are_one_or_the_other(both: bool, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *(["--cases", "cases.json", "--config", str(config)] if both else [])]) == 2
    captured = capsys.readouterr()
    given = "both" if both else "neither"
    expected = f"ddte verify: cases and config are {given} given: give one, `--cases FILE` or `--config FILE`.\n"
    assert (captured.out, captured.err) == ("", expected)


def test_settings_are_checked_before_the_models_are_loaded(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, named in (
        (["--verifier", "travesal"], "travesal"),
        (["--texts", "10"], "texts is 10"),
        (["--policy", "copy"], "copy 8"),
    ):
        assert main(["verify", "--config", str(config), "--pair.target", "./no/such", *flags]) == 2
        error = capsys.readouterr().err
        assert named in error
        assert error.count("\n") == 1
