"""Plausible mistakes on the command line: each gives one line with the field and the value, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.cli.main import main

DECODE = ("decode", "--checkpoint", "x", "--prompt", "Hello")
GENERATE = ("generate", "--out", "never")


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of a call that must exit with code 2."""
    try:
        code: object = main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "command", "words"),
    [
        (["decod"], "ddte", ["decod", "decode"]),
        (["bench"], "ddte bench", ["verb", "efficiency"]),
        (["train"], "ddte train", ["--data, --profile and --out are left out"]),
        (["decode"], "ddte decode", ["prompt and prompts"]),
        (["decode", "--prompt", "Hello", "--pair.target", "mine"], "ddte decode", ["checkpoint is left out"]),
        (["bench", "efficiency"], "ddte bench efficiency", ["--data is left out"]),
        (["decode", "--checkpoint"], "ddte decode", ["--checkpoint has no value"]),
        ([*DECODE, "--chekpoint", "y"], "ddte decode", ["--chekpoint", "did you mean --checkpoint?"]),
        ([*DECODE, "--max_new_tokens", "4"], "ddte decode", ["--max_new_tokens", "mean --decode.max_new_tokens?"]),
        ([*DECODE, "--frobnicate", "4"], "ddte decode", ["--frobnicate", "`ddte decode --help`"]),
        ([*DECODE, "my", "friend"], "ddte decode", ["my friend"]),
        (
            [*DECODE, "--decode.max_new_tokens", "many"],
            "ddte decode",
            ["decode.max_new_tokens", "a whole number", "many"],
        ),
        ([*DECODE, "--decode.temperature", "hot"], "ddte decode", ["decode.temperature", "a number", "hot"]),
        ([*DECODE, "--decode.temperature", "-1"], "ddte decode", ["decode.temperature is -1"]),
        ([*DECODE, "--decode.guard", "maybe"], "ddte decode", ["decode.guard", "maybe"]),
        ([*DECODE, "--pair.dtype", "int4"], "ddte decode", ["pair.dtype", "bfloat16", "int4"]),
        ([*DECODE, "--pair.threads", "-1"], "ddte decode", ["pair.threads is -1"]),
        ([*DECODE, "--pair", '{"threads": "x"}'], "ddte decode", ["pair.threads", "a whole number", "x"]),
        ([*DECODE, "--pair", "3"], "ddte decode", ["pair is '3'", "KEY: VALUE"]),
        ([*GENERATE, "--engine", "rai"], "ddte generate", ["engine", "local", "rai"]),
        (["generate", "--out", ""], "ddte generate", ["out is '': give a path."]),
        (["generate", "--out="], "ddte generate", ["out is '': give a path."]),
        (["evaluate", "--run", "", "--data", "x", "--out", "y"], "ddte evaluate", ["run is '': give a path or a list"]),
        ([*GENERATE, "--merge", "a"], "ddte generate", ["merge", "list", "a"]),
        ([*GENERATE, "--generate.settings", "[0.5, 1.0]"], "ddte generate", ["generate.settings", "0.5"]),
        ([*GENERATE, "--generate.settings", "[[0.5, 2.0]]"], "ddte generate", ["generate.settings", "top_p is 2.0"]),
        ([*GENERATE, "--generate.draft_warp", "sam"], "ddte generate", ["generate.draft_warp", "same", "sam"]),
        (
            [*GENERATE, "--generate.draft_warp", "[-1, 1]"],
            "ddte generate",
            ["generate.draft_warp", "temperature is -1"],
        ),
        ([*GENERATE, "--generate.num_samples", "3"], "ddte generate", ["generate.num_samples is 3"]),
        ([*GENERATE, "--action_space.num_branches", "0"], "ddte generate", ["action_space.num_branches is 0"]),
        (["bench", "verification", "--verifiers", "nss"], "ddte bench verification", ["verifiers", "list", "nss"]),
        (["bench", "verification", "--nodes", "[8, x]"], "ddte bench verification", ["nodes", "a whole number", "x"]),
        (["bench", "verification", "--nodes", "[1]"], "ddte bench verification", ["nodes is [1]"]),
    ],
)
def test_arguments(arguments: list[str], command: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    error = said(capsys, *arguments)
    assert error.startswith(f"{command}: ")
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["{path}", "No such file"]),
        (b"pair:\n  target: \xe9\n", ["{path}", "utf-8"]),
        (b"pair:\n  target: x\n draft: [\n", ["{path}", "line 3"]),
        (b"", ["{path}", "no settings"]),
        (b"- a\n", ["{path}", "no settings"]),
        (b"pair: {}\ntrain:\n", ["{path}", "no settings of train"]),
        (b"train: 3\n", ["{path}", "no settings of train"]),
        (b"decod: {}\n", ["{path}", "'decod'", "'decode'"]),
        (b"train:\n  sed: 3\n", ["{path}", "'train.sed'", "'train.seed'"]),
        (b"train:\n  lr: 3\n", ["{path}", "'train.lr'"]),
        (b"train:\n  seed: three\n", ["train.seed is 'three': give a whole number."]),
        (b"train:\n  batch_size: 0\n", ["train.batch_size is 0"]),
        (b"train:\n  seed: 1\n  seed: 2\n", ["{path}", "'seed' is given twice", "line 3"]),
        (b"train: {seed: 1}\npair: {}\ntrain: {seed: 2}\n", ["{path}", "'train' is given twice", "line 3"]),
    ],
)
def test_configuration_files(
    content: bytes | None, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pair.yaml"
    if content is not None:
        path.write_bytes(content)
    error = said(capsys, *GENERATE, "--config", path)
    assert error.startswith("ddte generate: ")
    for word in words:
        assert word.replace("{path}", repr(str(path))) in error


def test_a_file_may_hold_flags_of_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pair.yaml").write_text("out: here\ngenerate:\n  seed: 3\n")
    with pytest.raises(SystemExit) as stop:
        main(["generate", "--config", str(tmp_path / "pair.yaml"), "--print_config"])
    assert stop.value.code == 0
    assert "out: here" in capsys.readouterr().out
