"""The command line: one sentence and exit code 2 for bad input, nothing written, help without torch."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from selector.cli.bench import BENCHES
from selector.cli.main import PIPE_CLOSED, VERBS, build_parser, main
from selector.cli.parser import SECTIONS, Group
from selector.config import Config
from selector.decoding.policies import fixed_policy

CONFIG = Path(__file__).parents[3] / "configs" / "smollm2-135m.yaml"


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Standard error of a call that must exit with code 2, in one line."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


def changed_config(folder: Path, section: str, **values: object) -> Path:
    config = yaml.safe_load(CONFIG.read_text())
    config.setdefault(section, {}).update(values)
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    about = shown.partition("options:")[0]
    assert "<class" not in about
    assert "Args:" not in about
    chosen = VERBS[verb]
    sections = () if isinstance(chosen, Group) else chosen.sections
    for name in sections:
        assert f"--{name}." in shown
    for name in set(SECTIONS) - {*sections}:
        assert f"--{name}." not in shown


@pytest.mark.parametrize("name", SECTIONS)
def test_every_setting_is_explained(name: str) -> None:
    """In its own words, with its default."""
    parser = build_parser()
    run = next(action for action in parser._actions if action.dest == "verb").choices["run"]
    settings = {action.dest: action for action in run._actions if action.dest.startswith(f"{name}.")}
    assert {*settings} == {f"{name}.{entry.name}" for entry in fields(SECTIONS[name])}
    for action in settings.values():
        assert len(str(action.help)) > 10


def test_no_verb_gives_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().err
    assert all(verb in shown for verb in VERBS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"ddte {metadata.version('ddte')}\n"


@pytest.mark.parametrize("kind", BENCHES)
def test_help_of_every_bench(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["bench", kind, "--help"])
    assert stop.value.code == 0
    assert f"usage: ddte bench {kind}" in capsys.readouterr().out


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys\nfrom selector.cli.main import main\n"
        "try:\n    main(['decode', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'transformers', 'pytorch_lightning'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_misspelt_key_in_the_file_is_named_with_its_neighbour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed_config(tmp_path, "generate", root_evry=8)
    error = refused(capsys, "generate", "--config", path, "--out", tmp_path / "data")
    assert "generate.root_evry" in error
    assert "'generate.root_every'" in error
    assert not (tmp_path / "data").exists()


def test_wrong_type_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed_config(tmp_path, "train", batch_size="many")
    assert "train.batch_size" in refused(capsys, "generate", "--config", path, "--out", tmp_path / "data")


@pytest.mark.parametrize("flag", ["--prom", "--decode.temp", "--decode.max_new"])
def test_part_of_a_flag_is_not_the_flag(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert flag in refused(capsys, "decode", "--checkpoint", "x", "--prompt", "Hello", flag, "1")


def test_paths_in_messages_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "generate", "--config", "../no/such.yaml", "--out", "x")
    assert "../no/such.yaml" in error
    assert not error.endswith("..\n")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "latin.yaml").write_bytes("pair:\n  target: é\n".encode("latin-1"))
    assert "utf-8" in refused(capsys, "generate", "--config", tmp_path / "latin.yaml", "--out", tmp_path / "data")


@pytest.mark.parametrize(("verb", "goes_on"), [("generate", True), ("profile", False)])
def test_only_resumable_verbs_say_that_they_go_on(
    verb: str, goes_on: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(out: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    monkeypatch.setitem(VERBS, verb, VERBS[verb]._replace(run=interrupted))
    assert main([verb, "--out", "x"]) == 130
    error = capsys.readouterr().err
    assert "interrupted" in error
    assert ("goes on" in error) == goes_on


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_during_an_import_ends_the_process_without_an_exception_in_it(
    tmp_path: Path, name: str, code: int
) -> None:
    """A module's C++ code cannot let it pass; here one that would swallow it stands for that."""
    module = (
        f"import os, signal\ntry:\n    os.kill(os.getpid(), signal.{name})\nexcept BaseException:\n    os.abort()\n"
    )
    (tmp_path / "heavy.py").write_text(module)
    call = (
        "import sys\nfrom selector.cli.main import VERBS, main\n"
        "def run(out: str):\n    import heavy\n"
        "VERBS['generate'] = VERBS['generate']._replace(run=run)\nsys.exit(main(['generate', '--out', 'x']))"
    )
    path = os.pathsep.join([str(tmp_path), str(CONFIG.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", call], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (
        code, "ddte generate: interrupted; the same command goes on from here.\n"
    )  # fmt: skip


@pytest.mark.parametrize(("verb", "goes_on"), [("generate", True), ("profile", False)])
def test_a_disk_that_takes_nothing_more_is_one_sentence(
    verb: str, goes_on: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(out: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out))

    monkeypatch.setitem(VERBS, verb, VERBS[verb]._replace(run=full))
    error = refused(capsys, verb, "--out", "x")
    assert "'x'" in error
    assert "No space left" in error
    assert ("goes on" in error) == goes_on


def test_output_that_cannot_show_a_character_shows_its_escape() -> None:
    code = (
        "import sys\nfrom selector.cli.main import VERBS, main\n"
        "def profile(out: str):\n    print('na\\u00efve \\u2713')\n"
        "VERBS['profile'] = VERBS['profile']._replace(run=profile)\n"
        "sys.exit(main(['profile', '--out', 'x']))"
    )
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"na\\xefve \\u2713\n", b"")


def test_a_closed_pipe_is_no_error() -> None:
    code = (
        "import sys\nfrom selector.cli.main import VERBS, main\n"
        "def decode(checkpoint: str, prompt: str):\n    while True:\n        print('word', flush=True)\n"
        "VERBS['decode'] = VERBS['decode']._replace(run=decode)\n"
        "sys.exit(main(['decode', '--checkpoint', 'x', '--prompt', 'y']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == PIPE_CLOSED


def test_flags_after_the_file_win(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["generate", "--config", str(CONFIG), "--generate.seed", "7", "--out", "x", "--print_config"])
    assert yaml.safe_load(capsys.readouterr().out)["generate"]["seed"] == 7


def test_unknown_verb_and_missing_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert "decod" in refused(capsys, "decod")
    assert "run" in refused(capsys, "export", "--out", "x")


def test_broken_prompt_line_is_named_by_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.jsonl"
    good = '{"id": "a", "task": "t", "source": "s", "licence": "l", "messages": [{"role": "user", "content": "Hi"}]}'
    prompts.write_text(good + "\n" + good[:40] + "\n")
    path = changed_config(tmp_path, "generate", prompts=[str(prompts)])
    for verb in ("generate", "run"):
        error = refused(capsys, verb, "--config", path, "--out", tmp_path / "out")
        assert "prompts.jsonl" in error
        assert "2" in error
        assert not (tmp_path / "out").exists()


def test_folder_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for verb in ("generate", "run"):
        assert str(tmp_path) in refused(capsys, verb, "--config", CONFIG, "--out", tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("verb", ["run", "train", "export"])
def test_an_output_that_is_a_file_or_lies_below_one_is_refused(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    flags = {"run": [], "train": ["--data", "x", "--profile", "y"], "export": ["--run", "x"]}[verb]
    for out in [file / "below"] + [file] * (verb == "run"):
        assert str(out) in refused(capsys, verb, *flags, "--out", out)
    assert file.read_text() == "mine"


def test_folder_of_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from selector.cli.run import claim

    claim(Config(**{name: section() for name, section in SECTIONS.items()}), tmp_path / "run")
    error = refused(capsys, "run", "--config", CONFIG, "--out", tmp_path / "run")
    assert "action_space.trunk_length" in error


@pytest.mark.parametrize(
    ("section", "values", "named"),
    [
        ("generate", {"verifiers": ["traversal"]}, "train.verifiers has 'nss'"),
        ("train", {"batch_size": 0}, "batch_size is 0"),
        ("decode", {"top_p": 0.0}, "top_p is 0"),
        ("decode", {"max_new_tokens": 0}, "decode.max_new_tokens is 0"),
        ("evaluate", {"bootstrap": 0}, "evaluate.bootstrap is 0"),
        ("evaluate", {"level": 95.0}, "evaluate.level is 95"),
        ("pair", {"target": "./no/such/target"}, "pair.target is './no/such/target'"),
        ("pair", {"draft": "../no-draft"}, "pair.draft is '../no-draft'"),
    ],
)
def test_a_run_refuses_what_a_later_stage_would(
    section: str, values: dict[str, object], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed_config(tmp_path, section, **values)
    assert named in refused(capsys, "run", "--config", path, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_unknown_policy_is_named_with_the_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--checkpoint", tmp_path, "--prompt", "Hello", "--decode.policy"]
    error = refused(capsys, "decode", *flags, "foo")
    assert "decode.policy is 'foo': choose auto, policy, regressor or a tree (K, L1, L2)" in error
    assert fixed_policy("(2, 1, 3)").expansion == (2, 1, 3)
    assert fixed_policy("auto") is None


def test_places_of_results_are_checked_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "report.html").write_text("mine")
    evaluation = ["evaluate", "--run", tmp_path / "none", "--data", tmp_path / "none", "--out"]
    for out in ("old", "old/report.html", "old/report.html/new"):
        assert str(tmp_path / out) in refused(capsys, *evaluation, tmp_path / out)
    assert "out is" in refused(capsys, "profile", "--out", tmp_path / "old" / "report.html" / "profile.json")
    assert (tmp_path / "old" / "report.html").read_text() == "mine"


def test_no_run_at_all_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "run is []" in refused(capsys, "evaluate", "--run", "[]", "--data", tmp_path, "--out", tmp_path / "new")
    twice = f"[{tmp_path},{tmp_path}/../{tmp_path.name}]"
    assert "twice" in refused(capsys, "evaluate", "--run", twice, "--data", tmp_path, "--out", tmp_path / "new")


def test_a_profile_makes_its_folder_and_prints_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that other work disturbed is measured again."""
    from selector.decoding import profiling
    from selector.engine import huggingface
    from selector.latency import LatencyProfile

    times = LatencyProfile((1, 9), (1,), ((0.1,),) * 2, ((0.01,),) * 2, (0.002,), (0.12,) * 2, 69e-6)
    profiles = iter([replace(times, target_seconds=((0.3,), (0.1,))), times])
    monkeypatch.setattr(huggingface, "load_pair", lambda pair: None)
    monkeypatch.setattr(profiling, "measure_profile", lambda pair, **_: next(profiles))
    assert main(["profile", "--out", str(tmp_path / "new" / "folder" / "profile.json")]) == 0
    assert LatencyProfile.load(tmp_path / "new" / "folder" / "profile.json") == times
    printed = capsys.readouterr()
    assert "300.0 ms on 1 tokens" in printed.err
    cells = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in printed.out.splitlines()]
    for row in (["target", "9", "100.0"], ["draft", "1", "10.0"], ["around a step", "", "2.0"]):
        assert row in cells
    assert ["plain generate", "9", "120.0"] in cells
    assert ["one choice", "", "69 µs"] in cells


def test_empty_prompt_and_missing_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "prompt is empty" in refused(capsys, "decode", "--checkpoint", tmp_path, "--prompt", " ")
    assert str(tmp_path) in refused(capsys, "decode", "--checkpoint", tmp_path, "--prompt", "Hello")
    one = ("decode", "--checkpoint", tmp_path, "--prompt", "Hello", "--out", tmp_path / "answers.jsonl")
    assert "it is for --prompts" in refused(capsys, *one)


def test_worked_cases(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cases = Path(__file__).parents[2] / "data" / "verification_examples.json"
    assert main(["verify", "--cases", str(cases)]) == 0
    assert "ok" in capsys.readouterr().out
    (tmp_path / "wrong.json").write_text(cases.read_text().replace('"expected": 2.', '"expected": 2.1', 1))
    assert main(["verify", "--cases", str(tmp_path / "wrong.json")]) == 1
    assert "MISS" in capsys.readouterr().out
