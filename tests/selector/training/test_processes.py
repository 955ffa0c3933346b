"""Training as its own process: killed with SIGKILL, split over two processes, in mixed precision, with all loggers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from selector.training.fit import train
from selector.training.run_folder import RunFolder
from tests.support.learning_curves import read_curve
from tests.support.profiles import COSTLY_DRAFT
from tests.support.synthetic_data import CONFIG, write_dataset

SMALL = {
    "verifiers": "[naive]", "hidden_sizes": "[16,8]", "components": 8, "batch_size": 8, "max_epochs": 30,
    "patience": 30, "dropout": 0.2, "accelerator": "cpu",
}  # fmt: skip
QUIET = os.environ | {"OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_dataset(folder / "data", prompts=20, roots=6)
    COSTLY_DRAFT.save(folder / "profile.json")
    return folder


def start(data: Path, out: Path, **changes: object) -> subprocess.Popen[bytes]:
    settings = [f"--train.{name}={value}" for name, value in (SMALL | changes).items()]
    places = ["--data", data / "data", "--profile", data / "profile.json", "--out", out]
    command = [sys.executable, "-m", "selector.cli", "train", *map(str, places), *settings]
    return subprocess.Popen(command, env=QUIET, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen[bytes]) -> None:
    output, _ = process.communicate(timeout=170)
    assert process.returncode == 0, output.decode()


def kill_after(
    process: subprocess.Popen[bytes], folder: Path, epochs: int, number: int = signal.SIGKILL
) -> tuple[int, str]:
    """The exit code and the output after a signal, sent once the curve has as many epochs and more are under way."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "csv").exists() and len(read_curve(folder)) >= epochs and (folder / "last.ckpt").exists():
            process.send_signal(number)
            output, _ = process.communicate(timeout=120)
            return process.returncode, output.decode()
        time.sleep(0.01)
    process.kill()
    raise AssertionError(f"the process ended before epoch {epochs}: {process.communicate()[0].decode()}")


def same_runs(left: RunFolder, right: RunFolder) -> None:
    curves = [read_curve(run.verifier_folder("naive")) for run in (left, right)]
    assert [row["epoch"] for row in curves[0]] == list(range(len(curves[0])))
    assert len(curves[0]) == len(curves[1])
    for rows in zip(*curves, strict=True):
        assert rows[0] == pytest.approx(rows[1])
    best = [torch.load(run.verifier_folder("naive") / "best.ckpt", weights_only=True) for run in (left, right)]
    assert best[0]["epoch"] == best[1]["epoch"]
    assert all(torch.equal(tensor, best[1]["state_dict"][name]) for name, tensor in best[0]["state_dict"].items())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_training_says_that_it_goes_on(number: int, code: int, data: Path, tmp_path: Path) -> None:
    """Lightning by itself would end with 0 after SIGTERM and with 1, without a word, after Ctrl-C."""
    returned, output = kill_after(start(data, tmp_path / "run"), tmp_path / "run" / "naive", 2, number)
    assert returned == code, output
    assert output.strip().endswith("ddte train: interrupted; the same command goes on from here.")
    assert "Traceback" not in output
    finish(start(data, tmp_path / "run"))


@pytest.mark.slow
def test_sigkill_changes_neither_curve_nor_best(data: Path, tmp_path: Path) -> None:
    finish(start(data, tmp_path / "whole"))
    kill_after(start(data, tmp_path / "parts"), tmp_path / "parts" / "naive", 4)
    finish(start(data, tmp_path / "parts"))
    same_runs(RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts"))


@pytest.mark.slow
def test_killed_runs_go_on_in_every_logger(data: Path, tmp_path: Path) -> None:
    finish(start(data, tmp_path / "whole", loggers="[wandb,tensorboard]"))
    for epochs in (1, 9):
        kill_after(start(data, tmp_path / "parts", loggers="[wandb,tensorboard]"), tmp_path / "parts" / "naive", epochs)
    finish(start(data, tmp_path / "parts", loggers="[wandb,tensorboard]"))
    same_runs(RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts"))
    starts = [path.name for path in (tmp_path / "parts" / "naive" / "wandb").glob("offline-run-*")]
    ids = {re.sub(r"offline-run-\d+_\d+-", "", name) for name in starts}
    assert (len(starts), len(ids)) == (3, 1), "three starts of one W&B run"
    assert list((tmp_path / "parts" / "naive" / "tensorboard").glob("events.out.tfevents.*"))


def test_two_processes_train_one_selector(data: Path, tmp_path: Path) -> None:
    finish(start(data, tmp_path / "run", strategy="ddp", devices=2, max_epochs=3))
    run = RunFolder(tmp_path / "run")
    curve = read_curve(run.verifier_folder("naive"))
    assert [row["epoch"] for row in curve] == [0, 1, 2]
    state = torch.load(run.verifier_folder("naive") / "last.ckpt", weights_only=True)
    roots = len(run.splits.train) * 6
    assert state["global_step"] == 3 * -(-roots // 2 // 8), "each process has half of the roots"
    assert run.selector("naive").config.metrics["train_roots"] == roots


def test_mixed_precision_learns_as_float32_does(data: Path, tmp_path: Path) -> None:
    curves = []
    for precision in ("32-true", "bf16-mixed"):
        config = replace(CONFIG, precision=precision, max_epochs=4)
        train(data / "data", COSTLY_DRAFT, config, tmp_path / precision, Console(quiet=True))
        curves.append(read_curve(tmp_path / precision / "naive"))
    losses = [[row["validation_loss"] for row in curve] for curve in curves]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    state = torch.load(tmp_path / "bf16-mixed" / "naive" / "last.ckpt", weights_only=True)["state_dict"]
    assert all(tensor.dtype == torch.float32 for tensor in state.values())
