"""The bench command: settings, names of arms, exit codes, and what is refused before models are loaded."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from selector.bench import decode as bench
from selector.bench.decode import arm_names, bench_settings, exit_code
from selector.cli.main import main
from selector.config import DecodeConfig
from selector.distributions import Sampling

QUIET = Console(quiet=True)


def checkpoint(verifier: str) -> SimpleNamespace:
    return SimpleNamespace(config=SimpleNamespace(verifier=verifier))


def test_all_decoding_settings_are_measured() -> None:
    settings = DecodeConfig(temperature=0.7, top_p=0.9, top_k=40)
    assert bench_settings([], settings) == [Sampling.of(settings)] == [Sampling(0.7, 0.9, 40)]
    assert bench_settings([(1.0, 0.5)], settings) == [Sampling(1.0, 0.5, 40)]


def test_checkpoints_of_one_verifier_are_told_apart() -> None:
    folders = [Path("runs/a/nss"), Path("runs/b/nss"), Path("runs/a/bv")]
    names = arm_names(folders, [checkpoint("nss"), checkpoint("nss"), checkpoint("bv")])
    assert names == ["nss runs/a/nss", "nss runs/b/nss", "bv"]


@pytest.mark.parametrize(
    ("ratios", "required", "code"),
    [([None, None], None, 1), ([None, 0.5], None, 0), ([0.5, 1.4], 1.5, 1), ([0.5, 1.4], 1.2, 0)],
)
def test_exit_codes(ratios: list[float | None], required: float | None, code: int) -> None:
    assert exit_code([{"ratio_to_plain": ratio} for ratio in ratios], required, QUIET) == code


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--decode.max_new_tokens", "0"], "decode.max_new_tokens is 0"),
        (["--verifier", "nns"], "verifier is 'nns'"),
        (["--json", f"{__file__}/rows.json"], "json is"),
        (["--json", "/"], "which is a folder"),
        (["--checkpoint", '["one", "two", "one"]'], "'one' twice"),
        (["--evaluate.level", "95"], "evaluate.level is 95"),
    ],
)
def test_refused_before_the_models_are_loaded(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "load_pair", None)
    assert main(["bench", "decode", "--static", '["(2, 0, 2)"]', *flags]) == 2
    assert named in capsys.readouterr().err
