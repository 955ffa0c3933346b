"""Commands that verbs print: what they take over from the command line, how they are quoted, where they write."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from selector.cli.main import build_parser
from selector.cli.next_command import beside, command, configuration_words
from selector.cli.selectors import _recommended
from tests.support.printed import printed_commands


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("generate --out data", ""),
        ("train --config 'my pair.yaml' --data d --train.seed 3 --out run", "--config 'my pair.yaml' --train.seed 3"),
        ("run --out o --config=a.yaml --pair.target=x", "--config=a.yaml --pair.target=x"),
        ("decode --pair.draft d --prompt --decode.seed -1", "--pair.draft d --decode.seed -1"),
        ("bench decode --profile p --generate.verifiers '[nss, bv]'", "--generate.verifiers '[nss, bv]'"),
        ("export --run generate --hub_code --decode.guard false", "--decode.guard false"),
    ],
)
def test_settings_of_the_command_line_are_kept(line: str, kept: str) -> None:
    assert configuration_words(shlex.split(line)) == shlex.split(kept)


def test_a_command_is_what_a_shell_gives_back() -> None:
    given = ["--config", "my pair.yaml", "--pair.target=it's $HOME"]
    text = command("decode", given, checkpoint=Path("a b/nss"), prompt='Why "so"?')
    words = ["ddte", "decode", *given, "--checkpoint", "a b/nss", "--prompt", 'Why "so"?']
    assert printed_commands(f"some words\nNext: {text}\nReport: x\n") == [words]


def test_a_place_where_nothing_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert beside(tmp_path / "data", "run") == tmp_path / "run"
    (tmp_path / "run").mkdir()
    (tmp_path / "run-2").touch()
    assert beside(tmp_path / "data", "run") == tmp_path / "run-3"
    (tmp_path / "profile.json").touch()
    assert beside(tmp_path / "data", "profile.json") == tmp_path / "profile-2.json"
    monkeypatch.chdir(tmp_path)
    assert beside(Path("data"), "train") == Path("train")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    assert beside(Path("."), "train") == tmp_path / "train"


def test_export_goes_on_with_the_selector_that_the_report_recommends(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("nss", "rbv", "traversal")]

    def recommended(rows: list[dict[str, object]]) -> str:
        (tmp_path / "metrics.json").write_text(json.dumps(rows))
        return _recommended(folders, tmp_path / "metrics.json").name

    row = {"policy": "best_static", "metric": "tokens_per_second", "low": 1.0, "high": 9.0, "n_prompts": 4}
    rows = [row | {"verifier": name, "value": value} for name, value in (("nss", 2.0), ("bv", 5.0), ("traversal", 4.0))]
    assert recommended(rows) == "traversal"
    assert recommended([row | {"verifier": "rbv", "value": 3.0, "metric": "block_efficiency"}]) == "nss"
    assert _recommended(folders, None).name == "nss"


def test_every_verb_takes_what_the_others_were_given() -> None:
    given = ["--pair.target", "t", "--train.seed", "3", "--distill.layers", "[0]", "--decode.seed", "4"]
    flags = {
        "generate": ["--out", "o"],
        "train": ["--data", "d", "--profile", "p", "--out", "o"],
        "evaluate": ["--run", "r", "--data", "d", "--out", "o"],
        "export": ["--run", "r", "--metrics", "m", "--out", "o"],
        "decode": ["--checkpoint", "c", "--prompt", "p"],
        "profile": ["--out", "o"],
    }
    for verb, own in flags.items():
        parsed = build_parser().parse_args([verb, *given, *own])
        assert (parsed[verb].train.seed, parsed[verb].decode.seed) == (3, 4)
