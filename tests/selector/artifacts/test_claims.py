"""Output folders and locks, for every verb that makes something on disk."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from rich.console import Console

from data_gen.distillation.pipeline import _claim as claim_work
from data_gen.distillation.pipeline import distill
from data_gen.merging import merge
from data_gen.pipeline import generate
from selector.artifacts.claims import claim_folder, sole_writer
from selector.artifacts.writing import atomic_write
from selector.cli.run import claim, run_chain
from selector.config import DistillConfig, TrainConfig
from selector.errors import UserError
from selector.training.export import export
from selector.training.fit import train
from tests.selector.network.test_checkpoint import make_checkpoint
from tests.support.profiles import COSTLY_DRAFT
from tests.support.small_runs import small_config, table_pair
from tests.support.synthetic_data import CONFIG, write_dataset

QUIET = Console(file=io.StringIO())
Verb = Callable[[Path, str, dict[str, Any]], object]


def run_generate(out: Path, prompts: str, changes: dict[str, Any]) -> object:
    return generate(small_config([prompts], **changes), out, table_pair(), QUIET)


def run_train(out: Path, prompts: str, changes: dict[str, Any]) -> object:
    data = Path(prompts).parent / "train data"
    if not data.exists():
        write_dataset(data, prompts=12, roots=2)
    return train(data, COSTLY_DRAFT, replace(CONFIG, max_epochs=1, **changes), out, QUIET)


def run_distill(out: Path, prompts: str, changes: dict[str, Any]) -> object:
    """Far enough: what follows the claims needs a target."""
    config = replace(small_config([prompts]), distill=DistillConfig(**changes))
    return distill(config, out, out.with_name("work"))


def run_work(out: Path, prompts: str, changes: dict[str, Any]) -> object:
    return claim_work(out, replace(small_config([prompts]), distill=DistillConfig(**changes)))


def run_run(out: Path, prompts: str, changes: dict[str, Any]) -> object:
    return run_chain(small_config([prompts], **changes), out, QUIET)


def run_claim(out: Path, prompts: str, changes: dict[str, Any]) -> object:
    """What `run` does before its stages, which need models."""
    config = small_config([prompts], **changes)
    return claim(replace(config, train=TrainConfig(verifiers=["nss"])), out)


def run_merge(out: Path, prompts: str, changes: dict[str, Any]) -> object:
    return merge([out.parent / "a", out.parent / "b"], out, QUIET)


def run_export(out: Path, prompts: str, changes: dict[str, Any]) -> object:
    run = Path(prompts).parent / "finished run"
    if not run.exists():
        run_train(run, prompts, {})
    return export(run, out.parent if out.name == "naive" else out)


def run_save(out: Path, prompts: str, changes: dict[str, Any]) -> object:
    return make_checkpoint().save(out, "")


VERBS: dict[str, Verb] = {
    "generate": run_generate, "train": run_train, "distill": run_distill, "work": run_work, "run": run_run,
    "merge": run_merge, "export": run_export, "save": run_save,
}  # fmt: skip
GOING_ON: dict[str, tuple[Verb, str, str, Any, str | None]] = {
    "generate": (run_generate, "manifest.json", "system_prompt", "Be brief.", "config.generate"),
    "train": (run_train, "run.json", "inputs", "root", "config"),
    "work": (run_work, "distill.json", "seed", 3, "distill"),
    "run": (run_claim, "config.json", "system_prompt", "Be brief.", "generate"),
}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_and_a_foreign_folder_are_refused_by_every_verb(tmp_path: Path, prompt_file: str, verb: str) -> None:
    """One sentence, and nothing is touched."""
    out = tmp_path / "place" / ("naive" if verb == "export" else "out")
    out.parent.mkdir()
    out.write_text("mine")
    with pytest.raises(UserError, match=r"which is a file: give a new or an empty folder\.$"):
        VERBS[verb](out, prompt_file, {})
    assert out.read_text() == "mine"
    out.unlink()
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=r"which holds other files: give a new or an empty folder\.$"):
        VERBS[verb](out, prompt_file, {})
    assert files(tmp_path / "place") == {f"{out.name}/thesis.txt": b"mine"}


@pytest.mark.parametrize("verb", GOING_ON)
def test_another_runs_folder_is_refused_by_every_verb(tmp_path: Path, prompt_file: str, verb: str) -> None:
    go, _, name, value, _ = GOING_ON[verb]
    go(tmp_path / "out", prompt_file, {})
    before = files(tmp_path / "out")
    with pytest.raises(UserError, match=rf"holds another run \(.*{name} is .* there and {value!r} here\)"):
        go(tmp_path / "out", prompt_file, {name: value})
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize("verb", GOING_ON)
def test_a_run_that_lacks_a_new_setting_goes_on_in_every_verb(tmp_path: Path, prompt_file: str, verb: str) -> None:
    """A setting that is newer than the folder has its default there; another value is another run."""
    go, mark, name, value, section = GOING_ON[verb]
    out = tmp_path / "out"
    go(out, prompt_file, {})
    stored = json.loads((out / mark).read_text())
    part = stored
    for key in (section or "").split("."):
        part = part[key]
    del part[name]
    (out / mark).write_text(json.dumps(stored))
    go(out, prompt_file, {})
    with pytest.raises(UserError, match=rf"holds another run \(.*{name} is .* there and {value!r} here\)"):
        go(out, prompt_file, {name: value})


@pytest.mark.parametrize("verb", ["generate", "train", "distill", "run", "merge"])
def test_a_second_writer_is_refused_by_every_verb(tmp_path: Path, prompt_file: str, verb: str) -> None:
    out = tmp_path / "out"
    with FileLock(tmp_path / ".out.lock"), pytest.raises(UserError, match="where another run is at work"):
        VERBS[verb](out, prompt_file, {})
    assert not out.exists()


def test_a_link_to_a_folder_is_that_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    lock = sole_writer("out", tmp_path / "link")
    with sole_writer("out", tmp_path / "out"), pytest.raises(UserError, match="another run"), lock:
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


def test_torn_writes_alone_leave_a_folder_new(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".manifest.json.partial").write_text("{")
    assert not claim_folder("out", tmp_path / "out", "manifest.json")
    with atomic_write(tmp_path / "out") as temporary:
        temporary.mkdir()
    assert not list((tmp_path / "out").iterdir())


def test_a_place_that_cannot_be_written_to_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(UserError, match="is no folder to write to"):
        claim_folder("out", tmp_path / "out")
    assert not os.listdir(tmp_path)
