"""What Weights & Biases and TensorBoard are told: labels by who says them first, and figures at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wandb
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from selector.config import TrainConfig
from selector.dataset.dataset import RootDataset
from selector.errors import UserError
from selector.training.figures import held_out_ratios
from selector.training.fit import train
from selector.training.loggers import build_loggers, wandb_labels
from tests.support.profiles import COSTLY_DRAFT
from tests.support.synthetic_data import CONFIG, write_dataset

VARIABLES = {
    "WANDB_PROJECT": "theirs", "WANDB_RUN_GROUP": "several", "WANDB_NAME": "tuesday", "WANDB_TAGS": "one, two",
}  # fmt: skip
SAID = TrainConfig(
    verifiers=["naive"], wandb_project="mine", wandb_group="all", wandb_name="first", wandb_tags=["three"]
)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_SILENT", "true")


def test_labels_are_the_configurations_else_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, plain = Path("runs/pair/naive"), TrainConfig(verifiers=["naive"])
    labels = {"project": "ddte", "group": "pair", "name": "naive", "tags": [], "mode": "offline"}
    assert wandb_labels(plain, folder) == labels
    said = {"project": "mine", "group": "all", "name": "first", "tags": ["three"]}
    assert wandb_labels(SAID, folder) == said | {"mode": "offline"}
    for name, value in (VARIABLES | {"WANDB_MODE": "online"}).items():
        monkeypatch.setenv(name, value)
    found = {"project": "theirs", "group": "several", "name": "tuesday", "tags": ["one", "two"]}
    assert wandb_labels(plain, folder) == found, "W&B itself reads the mode"
    assert wandb_labels(SAID, folder) == said
    several = replace(plain, verifiers=["naive", "nss"])
    assert wandb_labels(several, folder)["name"] == "tuesday-naive"


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"wandb_project": "a/b"}, "train.wandb_project is 'a/b'"), ({"wandb_tags": ["x" * 65]}, "train.wandb_tags is")],
)
def test_labels_that_it_does_not_take_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        TrainConfig(**changes)


def test_a_service_that_does_not_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise wandb.errors.UsageError("api_key not configured (no-tty). call wandb login")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(UserError, match=r"'wandb', which does not start \(api_key not configured"):
        build_loggers(TrainConfig(loggers=["wandb"]), tmp_path, "id", {})


def test_figures_at_the_end(tmp_path: Path) -> None:
    """W&B's run offline is one file; TensorBoard's are read by its own reader."""
    write_dataset(tmp_path / "data", prompts=30)
    config = replace(CONFIG, max_epochs=1, loggers=["wandb", "tensorboard"], wandb_tags=["by-hand"])
    run = train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", Console(quiet=True))
    dataset = RootDataset.load(tmp_path / "data")
    test = dataset.subset(run.splits.rows(dataset, "test"))
    ratios = held_out_ratios(run.selector("naive"), test, COSTLY_DRAFT)
    assert 1 < ratios["test_ratio_to_static"] < ratios["test_oracle_ratio_to_static"] + 0.05

    (file,) = (tmp_path / "run" / "naive" / "wandb").glob("offline-run-*/*.wandb")
    content = file.read_bytes()
    for word in (*ratios, "oracle_gap", "profile/plain_ms", "target_seconds", "by-hand"):
        assert word.encode() in content, word

    events = EventAccumulator(str(tmp_path / "run" / "naive" / "tensorboard")).Reload()
    logged = {name: events.Scalars(name)[-1].value for name in (*ratios, "oracle_gap", "profile/plain_ms")}
    assert {name: logged[name] for name in ratios} == pytest.approx(ratios)
    assert logged["profile/plain_ms"] == pytest.approx(20)
    start = HParamsPluginData.FromString(events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content)
    settings = start.session_start_info.hparams
    assert settings["learning_rate"].number_value == config.learning_rate
    assert settings["verifier"].string_value == "naive"
