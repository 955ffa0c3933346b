"""`ddte decode --prompts`: rows, resuming, and failures that are named."""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from selector.cli import answer, batch_decode
from selector.cli.batch_decode import Answers, decode_all, read_prompts
from selector.cli.main import main
from selector.config import DecodeConfig
from selector.decoding.decoder import Decoder
from selector.distributions import Sampling
from selector.errors import UserError
from selector.trees.expansion import Expansion
from tests.support.table_model import TableModel

SETTINGS: dict[str, Any] = {"temperature": 1.0, "checkpoint": "here"}
DECODE = DecodeConfig(max_new_tokens=6, temperature=1.0)


class Words:
    """One token a word: its length modulo 8."""

    chat_template = None

    def __call__(self, text: str) -> Any:
        return SimpleNamespace(input_ids=[len(word) % 8 for word in text.split()])


def decoder() -> Decoder:
    """Takes texts of up to 20 tokens."""
    target, draft = TableModel(8, 1), TableModel(8, 2)
    target.max_length = 20
    pair: Any = SimpleNamespace(
        target=target, draft=draft, end_ids=(), decode=lambda tokens: " ".join(map(str, tokens)), tokenizer=Words()
    )
    return Decoder(pair, "nss", Expansion(2, 0, 2))


def prompts_file(folder: Path, **texts: str) -> Path:
    path = folder / "prompts.jsonl"
    rows = [{"id": name, "task": "t", "messages": [{"role": "user", "content": text}]} for name, text in texts.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def answer_all(source: Path, out: Path, used: Decoder | None = None, settings: dict[str, Any] = SETTINGS) -> int:
    return decode_all(used or decoder(), read_prompts(str(source)), Answers(out, settings), DECODE)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.jsonl"
    assert answer_all(prompts_file(tmp_path, a="one two", b="three four five"), out) == 0
    first, second = rows_of(out)
    assert [first["id"], second["id"]] == ["a", "b"]
    assert first["settings"] == SETTINGS
    assert first["seed"] != second["seed"]
    assert first["finish"] == "length"
    assert first["text"] == " ".join(map(str, first["tokens"]))
    assert first["statistics"]["tokens"] == len(first["tokens"]) == 6
    again = decoder().generate([3, 3], 6, Sampling(1.0), first["seed"])
    assert first["tokens"] == again.tokens


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    texts = dict.fromkeys("abcdef", "some words of it " * 2)
    source = prompts_file(tmp_path, **texts)
    whole, torn = tmp_path / "whole.jsonl", tmp_path / "torn.jsonl"
    answer_all(source, whole)
    lines = whole.read_text().splitlines(keepends=True)
    torn.write_text("".join(lines[:2]) + lines[2][:40])
    used = decoder()
    calls: list[Any] = []
    original = used.generate
    used.generate = lambda *arguments: calls.append(arguments) or original(*arguments)  # type: ignore[method-assign]
    assert answer_all(source, torn, used) == 0
    assert len(calls) == 4

    def without_times(path: Path) -> list[Any]:
        return [(row["id"], row["tokens"], row["text"], row["seed"]) for row in rows_of(path)]

    assert without_times(torn) == without_times(whole)
    before = torn.read_bytes()
    assert answer_all(source, torn, None) == 0
    assert torn.read_bytes() == before


def test_a_failed_prompt_is_named_and_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = prompts_file(tmp_path, good="one two", long="word " * 30, last="three"), tmp_path / "out.jsonl"
    assert answer_all(source, out) == 1
    assert [row["id"] for row in rows_of(out)] == ["good", "long", "last"]
    assert "prompt of 30 tokens" in rows_of(out)[1]["error"]
    assert "text" not in rows_of(out)[1]
    error = capsys.readouterr().err
    assert "Failed: long: " in error
    assert "2 of 3 prompts answered" in error
    roomy = decoder()
    roomy.pair.target.max_length = None  # type: ignore[misc]
    assert answer_all(source, out, roomy) == 0
    assert [row["id"] for row in rows_of(out)] == ["good", "last", "long"]
    assert not any("error" in row for row in rows_of(out))


def test_an_unforeseen_failure_is_named_too(tmp_path: Path) -> None:
    broken = decoder()
    broken.policy = SimpleNamespace(choose=lambda root: 1 / 0)
    out = tmp_path / "out.jsonl"
    assert answer_all(prompts_file(tmp_path, a="one"), out, broken) == 1
    assert rows_of(out)[0]["error"] == "ZeroDivisionError: division by zero"


def test_what_is_no_file_of_these_answers_is_left_alone(tmp_path: Path) -> None:
    source, out = prompts_file(tmp_path, a="one two"), tmp_path / "out.jsonl"
    answer_all(source, out)
    before = out.read_bytes()
    with pytest.raises(UserError, match=r"have temperature 1.0, not 0.5: give another file"):
        answer_all(source, out, None, SETTINGS | {"temperature": 0.5})
    with pytest.raises(UserError, match="where id 'a' is another prompt"):
        answer_all(prompts_file(tmp_path, a="one three"), out)
    assert out.read_bytes() == before
    out.write_text('{"mine": 1}\n')
    with pytest.raises(UserError, match="its line 1 is no row"):
        answer_all(source, out)
    assert out.read_text() == '{"mine": 1}\n'
    out.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="its line 1 is no row"):
        answer_all(source, out)


@pytest.mark.parametrize(
    "content",
    [
        b'{"mine": 1}',
        b"hello",
        b"[1, 2]",
        b'{"id": "a", "text": "unfin',
        b'{"id": "a", "prompt": "What?"}',
        b"\xff\xfe",
    ],
)
def test_a_file_without_a_final_line_feed_is_never_overwritten(tmp_path: Path, content: bytes) -> None:
    """What `json.dump` writes has none; only a row of ours that was cut off may be dropped."""
    source, out = prompts_file(tmp_path, a="one two"), tmp_path / "out.jsonl"
    out.write_bytes(content)
    with pytest.raises(UserError, match="its line 1 is no row"):
        answer_all(source, out)
    assert out.read_bytes() == content


@pytest.mark.parametrize(
    "content", [b'{"my": "own notes"}', b"hello", b'{"id": "c", "text": "unfin', b'{"id": 3}', b"\xff"]
)
def test_a_foreign_last_line_after_rows_is_never_dropped(tmp_path: Path, content: bytes) -> None:
    source, out = prompts_file(tmp_path, a="one two", b="three"), tmp_path / "out.jsonl"
    answer_all(source, out)
    before = out.read_bytes() + content
    out.write_bytes(before)
    with pytest.raises(UserError, match="its line 3 is no row"):
        answer_all(source, out)
    assert out.read_bytes() == before


def test_every_cut_of_a_later_row_goes_on(tmp_path: Path) -> None:
    """Also inside an escape of its id, and inside a letter of several bytes."""
    out = tmp_path / "out.jsonl"
    answer_all(prompts_file(tmp_path, a="one"), out)
    first = out.read_bytes()
    answer_all(prompts_file(tmp_path, **{'q"\\ü': "two"}), out)
    whole = out.read_bytes()
    for size in range(len(first), len(whole)):
        out.write_bytes(whole[:size])
        assert Answers(out, SETTINGS).done.keys() == {"a"}


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """To a file that is not there yet, and to one whose last row was cut off."""
    source, out, link = prompts_file(tmp_path, a="one", b="two"), tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(out.name)
    for _ in range(2):
        assert answer_all(source, link) == 0
        assert link.is_symlink()
        assert [row["id"] for row in rows_of(out)] == ["a", "b"]
        out.write_bytes(out.read_bytes()[:-20])


def test_every_cut_of_the_file_goes_on_or_is_left_alone(tmp_path: Path) -> None:
    """Cut in its first row before it can be known as ours, it is refused and stays; cut anywhere else, it goes on."""
    source, whole = prompts_file(tmp_path, a="one two", b="ü three"), tmp_path / "whole.jsonl"
    answer_all(source, whole)
    content, refused = whole.read_bytes(), 0
    for size in range(1, len(content), 7):
        out = tmp_path / "cut.jsonl"
        out.write_bytes(content[:size])
        try:
            Answers(out, SETTINGS)
        except UserError:
            refused += 1
            assert size < content.index(b'", "seed"')
            assert out.read_bytes() == content[:size]
    assert 0 < refused < 20
    out.write_bytes(content[: len(content) // 2])
    assert answer_all(source, out) == 0
    assert [row["tokens"] for row in rows_of(out)] == [row["tokens"] for row in rows_of(whole)]


def test_a_second_run_on_the_same_file_is_refused_and_loses_nothing(tmp_path: Path) -> None:
    """The second one starts while a failed row stands there, which it would drop, with all that came after it."""
    source, out = prompts_file(tmp_path, long="word " * 30, b="two", c="three"), tmp_path / "out.jsonl"
    first = decoder()
    decode, refused = first.generate, []

    def second(*arguments: Any) -> Any:
        with pytest.raises(UserError, match="where another run is at work"):
            answer_all(source, out)
        refused.append(1)
        return decode(*arguments)

    first.generate = second  # type: ignore[method-assign]
    assert answer_all(source, out, first) == 1
    assert len(refused) == 3
    assert [row["id"] for row in rows_of(out)] == ["long", "b", "c"]


def test_rows_that_another_run_wrote_meanwhile_are_kept(tmp_path: Path) -> None:
    """Between reading the file and writing to it the models are loaded, which takes long."""
    source, out = prompts_file(tmp_path, a="one", b="two"), tmp_path / "out.jsonl"
    early = Answers(out, SETTINGS)
    answer_all(source, out)
    before = out.read_bytes()
    assert decode_all(decoder(), read_prompts(str(source)), early, DECODE) == 0
    assert out.read_bytes() == before


def test_a_full_disk_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = prompts_file(tmp_path, a="one two", b="three", c="four"), tmp_path / "out.jsonl"
    real, count = batch_decode._append, iter(range(9))

    class Full:
        """A disk that takes half of a row."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, line: bytes) -> int:
            if len(line) < 60:
                raise OSError(28, "No space left on device")
            return int(self.file.write(line[:50]))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    with monkeypatch.context() as patch:
        patch.setattr(batch_decode, "_append", lambda file, line: real(Full(file) if next(count) == 1 else file, line))
        with pytest.raises(UserError, match="No space left"):
            answer_all(source, out)
    assert [row["id"] for row in rows_of(out)] == ["a"]
    assert answer_all(source, out) == 0
    assert [row["id"] for row in rows_of(out)] == ["a", "b", "c"]


def test_lines_of_standard_input() -> None:
    prompts = read_prompts("-", io.StringIO("How are you?\n\n  Fine. \n"))
    assert [(prompt.id, prompt.messages[0]["content"]) for prompt in prompts] == [
        ("line-1", "How are you?"),
        ("line-3", "Fine."),
    ]
    with pytest.raises(UserError, match="standard input holds no text"):
        read_prompts("-", io.StringIO("\n"))


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ([], "prompt and prompts"),
        (["--prompt", "Hello", "--prompts", "x.jsonl"], "prompt and prompts"),
        (["--prompts", "builtin"], "out is left out"),
        (["--prompts", "no-such-file.jsonl", "--out", "x.jsonl"], "no-such-file.jsonl"),
        (["--prompts", "builtin", "--out", __file__], "its line 1 is no row"),
        (["--prompts", "builtin", "--out", "/"], "which is a folder"),
        (["--prompts", "builtin", "--out", os.devnull], "which is a device"),
        (["--prompts", "builtin", "--out", f"{__file__}/x.jsonl"], "is no folder to write to"),
        (["--prompts", "builtin", "--out", f"{'x' * 300}.jsonl"], "cannot be written"),
    ],
)
def test_refused_before_the_models_are_loaded(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "build_decoder", None)
    assert main(["decode", "--checkpoint", "no/such/folder", *flags]) == 2
    assert named in capsys.readouterr().err


def test_a_place_that_lets_nothing_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without the right to write, or a disk that is read-only: the rights alone do not tell."""

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(answer, "build_decoder", None)
    command = ["decode", "--checkpoint", "x", "--prompts", "builtin", "--out", str(tmp_path / "new" / "out.jsonl")]
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", refuse)
        assert main(command) == 2
    assert capsys.readouterr().err == (
        f"ddte decode: out is '{tmp_path}/new/out.jsonl': '{tmp_path}' is no folder to write to; give another place.\n"
    )
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "out.jsonl").touch()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        assert main(command) == 2
    assert "which cannot be written (Read-only file system): give another file.\n" in capsys.readouterr().err
    assert (tmp_path / "new" / "out.jsonl").read_bytes() == b""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "build_decoder", lambda *_: decoder())
    source, out = prompts_file(tmp_path, a="one two", b="word " * 30), tmp_path / "out.jsonl"
    arguments = ["decode", "--checkpoint", "x", "--prompts", str(source), "--out", str(out)]
    assert main([*arguments, "--decode.max_new_tokens", "5"]) == 1
    row, failed = rows_of(out)
    assert len(row["tokens"]) == 5
    assert row["settings"]["max_new_tokens"] == 5
    assert row["settings"]["checkpoint"] == "x"
    assert "error" in failed
