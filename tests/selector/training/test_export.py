"""Export of a run, and the model card."""

import io
import json
from dataclasses import replace
from importlib import metadata

import pytest
import torch
from huggingface_hub import ModelCard
from rich.console import Console

from selector.cli.main import main
from selector.dataset.dataset import RootDataset
from selector.errors import UserError
from selector.network.checkpoint import SelectorCheckpoint, best_actions
from selector.training.export import export
from selector.training.fit import train
from selector.training.run_folder import RunFolder
from tests.support.profiles import COSTLY_DRAFT
from tests.support.synthetic_data import CONFIG, NAMES, SPACE, write_dataset

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_dataset(folder / "data", prompts=20, roots=6, noise=0.05)
    config = replace(CONFIG, max_epochs=4)
    run = train(folder / "data", COSTLY_DRAFT, config, folder / "run", Console(file=io.StringIO()))
    return run, RootDataset.load(folder / "data")


def test_exported_selectors_choose_as_the_run_does(finished, tmp_path):
    run, dataset = finished
    folders = export(run.path, tmp_path / "out")
    assert folders == [tmp_path / "out" / "naive"]
    exported = SelectorCheckpoint.load(folders[0])
    context = dataset.context_length.double()
    times = COSTLY_DRAFT.action_times(context, SPACE)
    for head in ("policy", "regressor"):
        choices = [
            best_actions(selector.predict(dataset.hidden, dataset.scalars, context), times, head)
            for selector in (run.selector("naive"), exported)
        ]
        assert torch.equal(*choices)
    assert exported.config == run.selector("naive").config


def test_model_card_tells_pair_figures_and_use(finished, tmp_path):
    row = {"verifier": "naive", "policy": "selector_policy", "metric": "ratio_to_plain", "value": 1.31234, "low": 1.2,
           "high": 1.4, "n_prompts": 4}  # fmt: skip
    (tmp_path / "metrics.json").write_text(json.dumps([row, {**row, "verifier": "nss", "value": 9.87}]))
    export(finished[0].path, tmp_path / "out", tmp_path / "metrics.json")
    card = (tmp_path / "out" / "naive" / "README.md").read_text()
    for text in (
        "naive verification",
        "fingerprint t1",
        "Decoder.from_checkpoint",
        "| selector_policy | ratio_to_plain | 1.312",
    ):
        assert text in card
    assert "9.87" not in card


def test_metadata_of_the_card_is_what_the_hub_shows(finished, tmp_path):
    run, _ = finished
    config = run.selector("naive").config
    assert (config.models, run.info.models) == (NAMES, NAMES)
    row = {"verifier": "naive", "policy": f"selector_{config.default_head}", "metric": "ratio_to_plain", "value": 1.25,
           "low": 1.2, "high": 1.4, "n_prompts": 4}  # fmt: skip
    others = [{"policy": "oracle"}, {"metric": "block_efficiency"}, {"metric": "ratio_to_best_static", "value": None}]
    (tmp_path / "metrics.json").write_text(json.dumps([row, *(row | other for other in others)]))
    export(run.path, tmp_path / "out", tmp_path / "metrics.json")
    card = ModelCard.load(tmp_path / "out" / "naive" / "README.md")
    assert card.text.startswith("\n# Draft-tree selector for naive verification\n")
    assert card.data.base_model == ["some/target", "some/base"]
    assert (card.data.license, card.data.library_name) == ("mit", "ddte")
    results = {(result.dataset_name, result.metric_type): result.metric_value for result in card.data.eval_results}
    assert results == {
        ("held-out prompts", "ratio_to_plain"): 1.25,
        (f"validation prompts of data set {config.data_hash[:16]}", "ratio_to_best_static"): pytest.approx(
            config.metrics["validation_ratio_to_static"]
        ),
    }
    for fact in ("| target | some/target@c0ffee; licence mit; fingerprint t1 |", "/drafts/own, made from some/base"):
        assert fact in card.text


def test_the_hubs_code_lies_beside_a_checkpoint_that_asks_for_it(finished, tmp_path):
    run, _ = finished
    for out, flags in (("without", []), ("with", ["--hub-code"])):
        assert main(["export", "--run", str(run.path), "--out", str(tmp_path / out), *flags]) == 0
        folder = tmp_path / out / "naive"
        assert (folder / "custom_generate" / "generate.py").exists() == bool(flags)
        assert ("custom_generate=" in (folder / "README.md").read_text()) == bool(flags)
    assert (folder / "custom_generate" / "requirements.txt").read_text() == f"ddte>={metadata.version('ddte')}\n"
    assert SelectorCheckpoint.load(folder).config == run.selector("naive").config


def test_occupied_folders_and_unfinished_runs_are_refused(finished, tmp_path):
    run, _ = finished
    export(run.path, tmp_path / "out")
    with pytest.raises(UserError, match="holds other files"):
        export(run.path, tmp_path / "out")
    with pytest.raises(UserError, match=r"has no run\.json"):
        export(tmp_path, tmp_path / "other")
    with pytest.raises(UserError, match="has selectors for naive"):
        RunFolder(run.path).selector("nss")
    info = json.loads((run.path / "run.json").read_text())
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "run.json").write_text(json.dumps(info))
    with pytest.raises(UserError, match="has not ended"):
        export(tmp_path / "half", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_checkpoints_lie_in_a_folder_of_checkpoints_alone(finished, tmp_path):
    run, _ = finished
    with pytest.raises(UserError, match="holds other files"):
        export(run.path, run.path.parent / "data")
    assert not (run.path.parent / "data" / "naive").exists()
    (tmp_path / "empty").mkdir()
    export(run.path, tmp_path / "empty")
    (tmp_path / "empty" / "naive").rename(tmp_path / "empty" / "other")
    export(run.path, tmp_path / "empty")
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["naive", "other"]


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([{"verifier": "naive"}], r"row 1 of metrics '.*' has no policy"),
        ([1], "row 1 of metrics '.*' is no row"),
        ({}, "not a list"),
    ],
)
def test_bad_figures_are_refused_and_nothing_is_written(finished, tmp_path, rows, word):
    (tmp_path / "metrics.json").write_text(json.dumps(rows))
    with pytest.raises(UserError, match=word):
        export(finished[0].path, tmp_path / "out", tmp_path / "metrics.json")
    assert not (tmp_path / "out").exists()


def test_figures_of_another_run_are_refused(finished, tmp_path):
    """`ddte evaluate` says beside them which selectors they are of."""
    run, _ = finished
    row = {"verifier": "naive", "policy": "selector", "metric": "ratio_to_plain", "value": 1.3, "low": 1.2, "high": 1.4,
           "n_prompts": 4}  # fmt: skip
    (tmp_path / "metrics.json").write_text(json.dumps([row]))
    (tmp_path / "selectors.json").write_text(json.dumps(["0" * 64]))
    with pytest.raises(UserError, match=r"are of other selectors than naive of this run \(target t1, draft d1\)"):
        export(run.path, tmp_path / "out", tmp_path / "metrics.json")
    assert not (tmp_path / "out").exists()
    (tmp_path / "selectors.json").write_text(json.dumps([run.selector("naive").identity]))
    export(run.path, tmp_path / "out", tmp_path / "metrics.json")


def test_data_and_pass_times_of_another_pair_or_run_are_refused(finished, tmp_path):
    run, dataset = finished
    write_dataset(tmp_path / "data", prompts=12, roots=2)
    run.check_data(dataset.manifest)
    with pytest.raises(UserError, match="data is of another run"):
        run.check_data(replace(dataset.manifest, seed=9))
    for name in ("target", "draft"):
        other = replace(run.profile, machine={"target": "t1", "draft": "d1"} | {name: "other"})
        with pytest.raises(UserError, match=rf"profile is made for another {name} model \(fingerprint other, not"):
            train(tmp_path / "data", other, CONFIG, tmp_path / "run", Console(file=io.StringIO()))
    assert not (tmp_path / "run").exists()
