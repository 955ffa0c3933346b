"""Plausible mistakes on the command line: each gives one sentence with the field, the value and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.cli.bench import BENCHES
from selector.cli.main import VERBS, main

DECODE = ("decode", "--checkpoint", "x", "--prompt", "Hello")
GENERATE = ("generate", "--out", "never")
ALL, KINDS = ", ".join(VERBS), ", ".join(BENCHES)


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], f"ddte: verb is left out: choose one of {ALL}."),
        (["decod"], f"ddte: verb is 'decod': choose one of {ALL}. Did you mean 'decode'?"),
        (["bench"], f"ddte bench: verb is left out: choose one of {KINDS}."),
        (["train"], "ddte train: data is left out: give --data, --profile, --out."),
        (["decode"], "ddte decode: checkpoint is left out: give --checkpoint (a checkpoint folder of `ddte export`)."),
        (
            ["bench", "efficiency"],
            "ddte bench efficiency: data is left out: give --data (a data set made by `ddte generate`).",
        ),
        (["decode", "--checkpoint"], "ddte decode: checkpoint has no value: give a path after --checkpoint."),
        (
            [*DECODE, "--chekpoint", "y"],
            "ddte decode: --chekpoint is no flag of this verb: see `ddte decode --help`. Did you mean '--checkpoint'?",
        ),
        (
            [*DECODE, "--max_new_tokens", "4"],
            "ddte decode: --max_new_tokens is no flag of this verb: see `ddte decode --help`. "
            "Did you mean '--decode.max_new_tokens'?",
        ),
        (
            [*DECODE, "my", "friend"],
            "ddte decode: 'my friend' follows no flag: put a text that has blanks between quotation marks.",
        ),
        (
            [*DECODE, "--decode.max_new_tokens", "many"],
            "ddte decode: decode.max_new_tokens is 'many': give a whole number.",
        ),
        ([*DECODE, "--decode.temperature", "hot"], "ddte decode: decode.temperature is 'hot': give a number."),
        ([*DECODE, "--decode.guard", "maybe"], "ddte decode: decode.guard is 'maybe': give true or false."),
        ([*DECODE, "--pair.dtype", "int4"], "ddte decode: pair.dtype is 'int4': give one of auto, float32, bfloat16, "),
        ([*DECODE, "--pair", '{"threads": "x"}'], "ddte decode: pair.threads is 'x': give a whole number."),
        ([*DECODE, "--pair", "3"], "ddte decode: pair is '3': give its keys, as --pair.KEY VALUE."),
        (
            [*GENERATE, "--engine", "rai"],
            "ddte generate: engine is 'rai': choose one of local, ray.",
        ),
        ([*GENERATE, "--merge", "a"], "ddte generate: merge is 'a': give a list [A, ...] of paths."),
        (
            [*GENERATE, "--generate.settings", "[0.5, 1.0]"],
            "ddte generate: generate.settings holds '0.5': give a list [A, ...] of pairs [A, B] of numbers.",
        ),
        (
            [*GENERATE, "--generate.draft_warp", "sam"],
            "ddte generate: generate.draft_warp is 'sam': give same or a pair [A, B] of numbers.",
        ),
        (
            ["bench", "verification", "--verifiers", "nss"],
            "ddte bench verification: verifiers is 'nss': give a list [A, ...] of texts.",
        ),
        (
            ["bench", "verification", "--nodes", "[8, x]"],
            "ddte bench verification: nodes holds 'x': give a list [A, ...] of whole numbers.",
        ),
    ],
)
def test_arguments(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = said(capsys, *arguments)
    assert error.startswith(sentence)
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "which cannot be read (No such file or directory): give a pair's YAML file"),
        (b"pair:\n  target: \xe9\n", "which is not UTF-8 text"),
        (b"pair:\n  target: x\n draft: [\n", "which is not YAML (line 3: "),
        (b"", "which holds no sections: give a pair's YAML file"),
        (b"- a\n", "which holds no sections: give a pair's YAML file"),
        (b"pair: {}\ntrain:\n", "train in {path} is None: give its keys, or remove it."),
        (b"train: 3\n", "train in {path} is 3: give its keys, or remove it."),
        (b"decod: {}\n", "decod in {path} is unknown: correct or remove it. Did you mean 'decode'?\n"),
        (b"train:\n  sed: 3\n", "train.sed in {path} is unknown: correct or remove it. Did you mean 'train.seed'?\n"),
        (b"train:\n  lr: 3\n", "train.lr in {path} is unknown: correct or remove it.\n"),
        (b"train:\n  seed: three\n", "train.seed is 'three': give a whole number."),
    ],
)
def test_configuration_files(
    content: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pair.yaml"
    if content is not None:
        path.write_bytes(content)
    error = said(capsys, *GENERATE, "--config", path)
    assert words.replace("{path}", repr(str(path))) in error
    assert error.startswith("ddte generate: ")
    assert error.count("\n") == 1


def test_a_file_may_hold_flags_of_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pair.yaml").write_text("out: here\ngenerate:\n  seed: 3\n")
    with pytest.raises(SystemExit) as stop:
        main(["generate", "--config", str(tmp_path / "pair.yaml"), "--print_config"])
    assert stop.value.code == 0
    assert "out: here" in capsys.readouterr().out
