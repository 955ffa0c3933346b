"""Training on synthetic data: it learns what there is, and no more."""

import errno
import io
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from selector.dataset.dataset import RootDataset
from selector.dataset.manifest import Manifest
from selector.errors import UserError
from selector.features import SCALARS
from selector.network.checkpoint import best_actions
from selector.offline.throughput import oracle_actions, throughput
from selector.training.fit import train
from selector.training.module import SelectorModule
from selector.training.run_folder import RunFolder
from tests.support.learning_curves import read_curve
from tests.support.profiles import COSTLY_DRAFT
from tests.support.synthetic_data import CONFIG, SPACE, acceptance_rates, expected_tokens, write_dataset

torch.set_num_threads(1)
QUIET = Console(file=io.StringIO())


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run on data with a gap: (run, data set)."""
    folder = tmp_path_factory.mktemp("learned")
    write_dataset(folder / "data", prompts=100)
    run = train(folder / "data", COSTLY_DRAFT, CONFIG, folder / "run", QUIET)
    return run, RootDataset.load(folder / "data")


def throughput_on_fresh_roots(run, head: str | None, informative: bool = True) -> tuple[float, float, float]:
    """Tokens a second of (the selector, the best static action, a perfect choice) by the true law of the labels."""
    generator = torch.Generator().manual_seed(99)
    hidden, scalars = torch.randn(2000, 14, generator=generator), torch.randn(2000, len(SCALARS), generator=generator)
    context = torch.full((2000,), 100.0)
    scalars[:, SCALARS.index("context_length")] = context
    rates = acceptance_rates(hidden, scalars[:, SCALARS.index("draft_entropy_root")])
    truth = expected_tokens(rates if informative else torch.full((2000,), 0.6))
    times, static_times = COSTLY_DRAFT.selector_times(context, SPACE), COSTLY_DRAFT.action_times(context, SPACE)
    blocks = ("target_hidden", "draft_hidden_prev", "draft_hidden_root")
    selector = run.selector("naive")
    prediction = selector.predict(dict(zip(blocks, hidden.split((6, 4, 4), 1), strict=True)), scalars, context)
    choices = best_actions(prediction, times, head or selector.config.default_head)
    tokens, one_text, rows = truth.double().numpy(), np.zeros(2000, dtype=np.int64), np.arange(2000)
    chosen, perfect = (
        float(throughput(tokens[rows, actions], times.numpy()[rows, actions], one_text))
        for actions in (choices.numpy(), oracle_actions(tokens, times.numpy(), one_text))
    )
    return chosen, float(throughput(tokens, static_times.numpy(), one_text).max()), perfect


@pytest.mark.parametrize("head", ["policy", "regressor"])
def test_both_heads_recover_most_of_the_gap(learned, head):
    chosen, static, perfect = throughput_on_fresh_roots(learned[0], head)
    assert (chosen - static) / (perfect - static) > 0.7


def test_regressor_predicts_the_truth(learned):
    run, dataset = learned
    test = dataset.subset(run.splits.rows(dataset, "test"))
    predicted = run.selector("naive").predict(test.hidden, test.scalars, test.context_length.double()).efficiency
    error = (predicted - test.mean_efficiency("naive")).square().mean()
    spread = test.mean_efficiency("naive").var(0).mean()
    assert error < 0.2 * spread


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_alone_does_not_make_it_lose(tmp_path, seed):
    write_dataset(tmp_path / "data", prompts=30, noise=0.6, informative=False, seed=seed)
    run = train(tmp_path / "data", COSTLY_DRAFT, replace(CONFIG, seed=seed, max_epochs=10), tmp_path / "run", QUIET)
    chosen, static, _ = throughput_on_fresh_roots(run, None, informative=False)
    assert chosen > 0.97 * static


def test_configuration_names_what_decoding_needs(learned):
    run, dataset = learned
    config = run.selector("naive").config
    assert (config.target_fingerprint, config.draft_fingerprint) == ("t1", "d1")
    assert config.sampling_range == {"temperature": [0.2, 1.0], "top_p": [1.0, 1.0]}
    assert config.data_hash == dataset.manifest.hash()
    assert config.metrics["learned"] == 1
    realised = {head: config.metrics[f"validation_throughput_{head}"] for head in ("policy", "regressor")}
    assert config.default_head == max(realised, key=realised.__getitem__)
    assert config.metrics["validation_ratio_to_static"] > 1.1
    assert SPACE.index(run.selector("naive").best_static) >= 0


def test_run_folder_says_where_it_comes_from(learned):
    info = learned[0].info
    assert info.config.learning_rate == CONFIG.learning_rate
    assert {"data_hash", "profile_hash", "versions", "git_revision", "data_config"} <= set(vars(info))
    assert learned[0].profile == COSTLY_DRAFT


@pytest.mark.parametrize("part", ["test", "validation", "train"])
def test_no_choice_sees_the_test_prompts(tmp_path, monkeypatch, part):
    """Other features and labels of the test prompts change nothing; those of the other parts do."""
    write_dataset(tmp_path / "data", prompts=25, roots=4, noise=0.3)
    dataset, config = RootDataset.load(tmp_path / "data"), replace(CONFIG, max_epochs=1)
    results = []
    for name in ("as it is", "changed"):
        output = Console(file=io.StringIO(), width=200)
        run = train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / name, output)
        selector = run.selector("naive")
        told = output.file.getvalue()[output.file.getvalue().index("Before training") :]
        results.append((selector.network.state_dict(), asdict(selector.config) | {"profile": None}, told))
        rows = run.splits.rows(dataset, part)
        for block in (*dataset.hidden.values(), dataset.scalars):
            block[rows] = 3 * block[rows].flip(1) + 1
        dataset.efficiency["naive"][rows] = dataset.efficiency["naive"][rows].flip(2)
        dataset.standard_error["naive"][rows] *= 5
        monkeypatch.setattr(RootDataset, "load", lambda _: dataset)
    (states, config, told), (other_states, other_config, other_told) = results
    same = [torch.equal(states[name], other_states[name]) for name in states]
    same += [config == other_config, told == other_told]
    assert all(same) if part == "test" else not any([same[-1], same[-2], all(same)])


class Killed(Exception):
    """Stands for the end of the process."""


def interrupt_after(monkeypatch, steps: int) -> None:
    original, done = SelectorModule.training_step, []

    def training_step(self, batch, index):
        done.append(index)
        if len(done) > steps:
            raise Killed
        return original(self, batch, index)

    monkeypatch.setattr(SelectorModule, "training_step", training_step)


@pytest.mark.parametrize("steps", [2, 17, 24])
def test_an_interrupted_run_repeats_the_same_curve(tmp_path, monkeypatch, steps):
    config = replace(CONFIG, max_epochs=5, dropout=0.2)
    write_dataset(tmp_path / "data", prompts=40, roots=10)
    whole = train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "whole", QUIET)
    with monkeypatch.context() as patch:
        interrupt_after(patch, steps)
        with pytest.raises(Killed):
            train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "parts", QUIET)
    parts = train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "parts", QUIET)
    curves = [read_curve(run.verifier_folder("naive")) for run in (whole, parts)]
    assert [row["epoch"] for row in curves[1]] == [0, 1, 2, 3, 4]
    for left, right in zip(*curves, strict=True):
        assert left == pytest.approx(right)
    states = [run.selector("naive").network.state_dict() for run in (whole, parts)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_finished_run_is_left_alone(tmp_path, monkeypatch):
    config = replace(CONFIG, max_epochs=1)
    write_dataset(tmp_path / "data", prompts=12, roots=4, verifiers=("naive", "nss"))
    config = replace(config, verifiers=["naive", "nss"])
    run = train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    assert [run.is_done(verifier) for verifier in run.verifiers] == [True, True]
    interrupt_after(monkeypatch, 0)
    train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)


def test_a_run_keeps_the_parts_of_its_start(tmp_path):
    """Those of an older version, too, whose split was another."""
    write_dataset(tmp_path / "data", prompts=20, roots=4)
    config = replace(CONFIG, max_epochs=1)
    run = train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    parts = asdict(run.splits)
    parts["test"] += [parts["train"].pop() for _ in range(3)]
    (tmp_path / "run" / "splits.json").write_text(json.dumps(parts))
    shutil.rmtree(tmp_path / "run" / "naive")
    run = train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    assert asdict(run.splits) == parts
    assert run.selector("naive").config.metrics["train_roots"] == 4 * len(parts["train"])


@pytest.mark.parametrize(("selector_seconds", "runs"), [(0.0, "selector"), (0.05, "static tree")])
def test_the_last_table_says_what_decoding_runs(tmp_path, selector_seconds, runs):
    write_dataset(tmp_path / "data", prompts=40)
    output, profile = io.StringIO(), replace(COSTLY_DRAFT, selector_seconds=selector_seconds)
    config = replace(CONFIG, max_epochs=2)
    run = train(tmp_path / "data", profile, config, tmp_path / "run", Console(file=output, width=200))
    selector, text = run.selector("naive"), output.getvalue()
    assert selector.beats_static == (runs == "selector")
    row = next(line for line in text[text.index("Selectors on validation") :].splitlines() if "│ naive" in line)
    assert row.strip("│ ").endswith(runs)
    assert (f"did not beat the static tree {selector.best_static}" in text) == (runs == "static tree")


def test_early_stopping_ends_the_run(tmp_path, monkeypatch):
    config = replace(CONFIG, max_epochs=50, patience=2)
    write_dataset(tmp_path / "data", prompts=12, roots=4, noise=0.6, informative=False)
    run = train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    epochs = len(read_curve(run.verifier_folder("naive")))
    assert epochs < 50
    # the process ended after the last epoch and before the selector was written
    (run.selector_folder("naive") / "config.json").unlink()
    (run.selector_folder("naive") / "README.md").unlink()
    (run.selector_folder("naive") / "model.safetensors").unlink()
    interrupt_after(monkeypatch, 0)
    train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    assert run.is_done("naive")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"verifiers": ["khisti"]}, "verifiers has 'khisti': the data set has labels for naive"),
        ({"verifiers": []}, "verifiers is"),
        ({"loggers": ["mlflow"]}, "loggers has 'mlflow'"),
        ({"worst_fraction": 0.0}, "worst_fraction is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"dropout": 1.0}, "dropout is 1"),
        ({"penalty": -1.0}, "penalty is -1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"hidden_sizes": (0, 8)}, "hidden_sizes is"),
        ({"components": 0}, "components is 0"),
        ({"inputs": "some"}, "inputs is 'some': choose one of all, root"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32 - 1}, "seed is 4294967295"),
        ({"accelerator": "abacus"}, "accelerator is 'abacus'"),
        ({"accelerator": "tpu"}, "accelerator is 'tpu'"),
    ],
)
def test_bad_configurations_are_refused_and_nothing_is_written(tmp_path, changes, word):
    write_dataset(tmp_path / "data", prompts=6, roots=2)
    with pytest.raises(UserError, match=word):
        train(tmp_path / "data", COSTLY_DRAFT, replace(CONFIG, **changes), tmp_path / "run", QUIET)
    assert not (tmp_path / "run").exists()


def test_a_broken_data_set_is_refused_and_nothing_is_written(tmp_path):
    write_dataset(tmp_path / "data", prompts=6, roots=2)
    replace(Manifest.load(tmp_path / "data"), complete=False).save(tmp_path / "data")
    with pytest.raises(UserError, match="complete is false"):
        train(tmp_path / "data", COSTLY_DRAFT, CONFIG, tmp_path / "run", QUIET)
    assert not (tmp_path / "run").exists()


def test_another_run_or_foreign_files_are_refused(tmp_path):
    write_dataset(tmp_path / "data", prompts=12, roots=2)
    config = replace(CONFIG, max_epochs=1)
    train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    before = json.loads((tmp_path / "run" / "run.json").read_text())
    with pytest.raises(UserError, match=r"learning_rate is 0.005 there and 0.1 here"):
        train(tmp_path / "data", COSTLY_DRAFT, replace(config, learning_rate=0.1), tmp_path / "run", QUIET)
    with pytest.raises(UserError, match="profile_hash"):
        train(tmp_path / "data", replace(COSTLY_DRAFT, selector_seconds=1.0), config, tmp_path / "run", QUIET)
    write_dataset(tmp_path / "other", prompts=12, roots=2, seed=5)
    with pytest.raises(UserError, match="data_hash"):
        train(tmp_path / "other", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == before
    with pytest.raises(UserError, match="holds other files"):
        train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "data", QUIET)


def test_the_gap_is_told_before_training(tmp_path):
    write_dataset(tmp_path / "data", prompts=12, roots=4)
    output = io.StringIO()
    console = Console(file=output, width=200)
    train(tmp_path / "data", COSTLY_DRAFT, replace(CONFIG, max_epochs=1), tmp_path / "run", console)
    text = output.getvalue()
    assert text.index("oracle gap") < text.index("Selectors on validation prompts")
    assert "naive: the best action a root" in text
    assert "disturbed" not in text


def test_training_on_disturbed_pass_times_says_so(tmp_path):
    write_dataset(tmp_path / "data", prompts=20)
    output, times = io.StringIO(), ((0.9, 0.007), (0.006, 0.007))
    console, profile = Console(file=output, width=200), replace(COSTLY_DRAFT, draft_seconds=times)
    train(tmp_path / "data", profile, replace(CONFIG, max_epochs=1), tmp_path / "run", console)
    end = output.getvalue()[output.getvalue().index("Selectors on validation") :]
    assert "Trained under disturbed pass times: a pass of the draft over 1 rows took 900.0 ms" in " ".join(end.split())


def test_a_disk_that_is_full_in_the_middle_of_a_state_leaves_one_to_go_on_from(tmp_path, monkeypatch):
    write_dataset(tmp_path / "data", prompts=6, roots=2)
    config, written, whole = replace(CONFIG, max_epochs=3), [], Path.write_bytes

    def full(path, content):
        written.append("last.ckpt" in path.name)
        if sum(written) == 2:
            whole(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(path, content)

    train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "whole", QUIET)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(UserError, match=r"out is '.*run', where writing failed .*last\.ckpt"):
            train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    states = [RunFolder(tmp_path / run).selector("naive").network.state_dict() for run in ("run", "whole")]
    assert all(torch.equal(tensor, states[1][key]) for key, tensor in states[0].items())


def test_a_damaged_state_is_refused(tmp_path, monkeypatch):
    write_dataset(tmp_path / "data", prompts=6, roots=2)
    config = replace(CONFIG, max_epochs=3)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        with pytest.raises(Killed):
            train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    best, last = (tmp_path / "run" / "naive" / name for name in ("best.ckpt", "last.ckpt"))
    whole = last.read_bytes()
    for damaged in (b"", whole[:-200]):
        last.write_bytes(damaged)
        with pytest.raises(UserError, match=r"last\.ckpt' is damaged \(it cannot be read\): delete"):
            train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    torch.save({"state_dict": {}}, last)
    with pytest.raises(UserError, match=r"last\.ckpt' is damaged \(it has no callbacks\)"):
        train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    last.write_bytes(whole)
    best.unlink()
    with pytest.raises(UserError, match=r"best\.ckpt' is damaged \(it is missing\)"):
        train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (None, r"config of '.*run\.json' is missing"),
        ({"config": {"verifiers": 3}}, r"run\.json' is damaged \(config\.verifiers is 3"),
        ({"data_hash": 3}, r"run\.json' is damaged \(data_hash is 3"),
    ],
)
def test_a_damaged_run_is_refused(learned, tmp_path, changes, word):
    whole = json.loads((learned[0].path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1} if changes is None else whole | changes))
    with pytest.raises(UserError, match=word):
        _ = RunFolder(tmp_path).verifiers


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ([], "it holds a list"),
        ({"train": [], "test": []}, "validation of .* is missing"),
        ({"train": [], "validation": 3, "test": []}, "validation is 3"),
    ],
)
def test_damaged_splits_are_refused(tmp_path, parts, word):
    (tmp_path / "splits.json").write_text(json.dumps(parts))
    with pytest.raises(UserError, match=word):
        _ = RunFolder(tmp_path).splits
