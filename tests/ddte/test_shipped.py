"""What is shipped is found by name from any folder, and all of it is in the wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import ddte
from data_gen.estimate import hidden_sizes
from selector import shipped
from selector.artifacts.writing import as_json
from selector.bench.step_arms import shipped_checkpoints
from selector.cli.main import build_parser, main
from selector.config import ActionSpaceConfig, DecodeConfig, EvaluateConfig, TrainConfig
from selector.engine.huggingface import check_folder
from selector.errors import UserError
from tests.support.disk_pair import disk_config
from tests.support.printed import follow

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("configs/*.yaml"))
SELECTORS = sorted(
    str(path.parent.relative_to(ROOT))
    for path in ROOT.glob("checkpoints/*/*/config.json")
    if "verifier" in path.read_text()
)
PROFILES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("profiles/*.json"))
PACKAGES = "ddte", "selector", "data_gen"
SOURCES = (*PACKAGES, "configs", "checkpoints", "profiles", "pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_are_read_from_any_folder(name: str, elsewhere: Path) -> None:
    parsed = build_parser().parse_args(["run", "--config", name, "--out", "never"])
    assert parsed.run.pair.draft == ddte.load_config(name).pair.draft


def test_draft_and_selectors_are_found_from_any_folder(elsewhere: Path) -> None:
    draft = ddte.PairConfig().draft
    check_folder("draft", draft)
    assert hidden_sizes(ddte.PairConfig()) == (576, 576)
    assert [str(path.relative_to(ROOT)) for path in shipped_checkpoints(draft)] == SELECTORS
    for name in SELECTORS:
        assert ddte.SelectorCheckpoint.load(name).config.verifier == Path(name).name


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_are_found_from_any_folder_and_say_where_they_come_from(name: str, elsewhere: Path) -> None:
    known = ddte.LatencyProfile.load(name).provenance
    assert all((known.target, known.draft, known.hardware, known.engine, known.source))


def test_what_lies_in_the_folder_comes_first(elsewhere: Path) -> None:
    own = elsewhere / shipped.SELECTOR
    own.mkdir(parents=True)
    assert shipped.find(shipped.SELECTOR) == Path(shipped.SELECTOR)
    with pytest.raises(UserError, match=r"config\.json"):
        ddte.SelectorCheckpoint.load(shipped.SELECTOR)


@pytest.mark.parametrize("name", ["checkpoints/absent/draft", "selector/cli", "tests", "/configs/quick.yaml"])
def test_nothing_else_is_found_by_name(name: str, elsewhere: Path) -> None:
    assert shipped.find(name) == Path(name)


def test_the_selector_that_is_taken_is_named(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The profile is what fails, after the selector was taken and before models are loaded."""
    assert main(["decode", "--prompt", "Hello", "--profile", "absent.json"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert f"--checkpoint {shipped.SELECTOR}" in said[0]
    assert "absent.json" in said[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel of this source tree, built from a copy."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    program = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    built = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    yield folder / built.stdout.splitlines()[-1]
    shutil.rmtree(folder)


def test_the_wheel_holds_every_module_and_what_is_shipped(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix in (".py", ".j2", ".jsonl", ".typed")
    ]
    weights = [f"ddte/{name}/{file}" for name in SELECTORS for file in ("config.json", "model.safetensors")]
    draft = ddte.PairConfig().draft
    wanted = {
        *packages,
        *weights,
        *(f"ddte/{name}" for name in (*CONFIGS, *PROFILES)),
        f"ddte/{draft}/model.safetensors",
    }
    assert wanted <= names, wanted - names
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {*PACKAGES}
    assert not [name for name in names if "/evaluation/report.html" in name]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own holds the wheel; torch and the like come from the one that runs the tests."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    own = next((folder / "lib").glob("python*/site-packages"))
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True)
    (own / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    where = "import data_gen, selector, ddte; print(ddte.__file__, selector.__file__, data_gen.__file__)"
    assert called(folder, [python, "-c", where]).stdout.count(str(own)) == 3
    return python.with_name("ddte")


def called(folder: Path, command: Sequence[Path | str]) -> subprocess.CompletedProcess[str]:
    """What a command that ends well has said, with `folder` as its own and no other path to the packages."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_decoding_from_an_empty_folder_with_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    flags = ["decode", "--prompt", "Name three colours.", "--decode.max_new_tokens", "24"]
    answer = called(tmp_path, [installed, *flags])
    assert answer.stdout.strip()
    assert f"--checkpoint {shipped.SELECTOR}" in answer.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_pair_of_two_folders_with_the_wheel_alone(installed: Path, tmp_path: Path, prompt_file: str) -> None:
    """Every stage from an empty folder, each by the command that the one before has printed."""
    config = replace(
        disk_config(tmp_path / "models", prompt_file, verifiers=["nss"]),
        action_space=ActionSpaceConfig(2, 1, 1),
        train=TrainConfig(["nss"], hidden_sizes=(8, 4), max_epochs=1),
        evaluate=EvaluateConfig(bootstrap=20, study=False),
        decode=DecodeConfig(max_new_tokens=8, temperature=1.0),
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "the pair.yaml").write_text(json.dumps(as_json(config)))
    first = ["ddte", "profile", "--config", "../the pair.yaml", "--out", "profile.json"]
    ran = follow(first, lambda command: called(empty, [installed, *command[1:]]).stdout)
    assert [command[1] for command in ran] == ["profile", "generate", "train", "evaluate", "export", "decode"]
    assert {path.name for path in empty.iterdir()} >= {"profile.json", "data", "train", "report", "checkpoints"}
