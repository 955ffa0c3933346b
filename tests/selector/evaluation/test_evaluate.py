"""The whole evaluation: rows, words and files."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from threadpoolctl import threadpool_info, threadpool_limits

from selector.config import EvaluateConfig
from selector.dataset.dataset import RootDataset
from selector.errors import UserError
from selector.evaluation import evaluate as report
from selector.evaluation.console import print_rows
from selector.evaluation.evaluate import all_rows, evaluate, evaluate_verifiers, split
from selector.evaluation.metrics import METRICS
from selector.evaluation.report.prose import combinations
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.statistics import Interval
from selector.trees.expansion import ActionSpace
from tests.support.page import Page
from tests.support.scripted_selectors import EvenNetwork, make_checkpoint
from tests.support.synthetic_data import SPACE, make_dataset

POLICIES = [
    "plain", "no_drafting", "best_static", "best_static_per_setting", "best_chain", "best_root_branching",
    "selector", "selector_policy", "selector_regressor", "oracle",
]  # fmt: skip
STUDIED = EvaluateConfig(bootstrap=200)
CONFIG = replace(STUDIED, study=False)
TEST = [f"prompt-{number:03d}" for number in range(0, 24, 2)]
Rows = list[dict[str, object]]


def rows_of(checkpoints: list[SelectorCheckpoint], dataset: RootDataset, profile: LatencyProfile) -> Rows:
    """`evaluate` without drawing."""
    return all_rows(evaluate_verifiers(checkpoints, *split(dataset, TEST, None), profile, CONFIG))


def figure(rows: Rows, policy: str, metric: str, verifier: str = "specinfer") -> dict[str, float]:
    wanted = {"verifier": verifier, "policy": policy, "metric": metric}
    return next(row for row in rows if wanted.items() <= row.items())


def test_rows_and_files_are_complete(tmp_path: Path, profile: LatencyProfile) -> None:
    dataset = make_dataset(noise=0.1, verifiers=("specinfer", "naive"))
    rows = evaluate([make_checkpoint()], dataset, profile, STUDIED, tmp_path, test_prompts=TEST)
    assert json.loads((tmp_path / "metrics.json").read_text()) == rows
    files = [
        "draft_cost.png",
        "map.json",
        "metrics.json",
        "overview.png",
        "report.html",
        "selectors.json",
        "study.json",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    study = json.loads((tmp_path / "study.json").read_text())
    assert {row["kind"] for row in study} == {"ablation", "learning curve"}
    assert {row["verifier"] for row in study} == {"specinfer"}, "the one that has a selector"
    for policy in POLICIES:
        for metric in METRICS:
            row = figure(rows, policy, metric)
            assert list(row) == ["verifier", "policy", "metric", "value", "low", "high", "n_prompts"]
            assert row["n_prompts"] == len(TEST)
            assert row["low"] <= row["value"] <= row["high"]


def test_values_follow_from_the_labels(profile: LatencyProfile) -> None:
    rows = rows_of([], make_dataset(constant=1.5), profile)
    assert figure(rows, "plain", "tokens_per_second")["value"] == pytest.approx(100)
    assert figure(rows, "best_static", "tokens_per_second")["value"] == pytest.approx(150)
    assert figure(rows, "best_static", "ratio_to_plain")["value"] == pytest.approx(1.5)
    assert figure(rows, "best_static", "block_efficiency")["value"] == pytest.approx(1.5)
    assert figure(rows, "oracle", "gap_recovered")["value"] is None


def test_a_good_selector_is_a_gain_and_a_bad_one_a_loss(tmp_path: Path, profile: LatencyProfile) -> None:
    dataset = make_dataset(verifiers=("specinfer", "naive"))
    good, bad = make_checkpoint(), make_checkpoint(easy=(1, 0, 0), hard=(2, 2, 3), verifier="naive")
    rows = evaluate([good, bad], dataset, profile, CONFIG, tmp_path, test_prompts=TEST)
    assert figure(rows, "selector_policy", "ratio_to_best_static")["low"] > 1
    assert figure(rows, "selector_policy", "gap_recovered")["value"] > 0
    assert figure(rows, "selector_policy", "ratio_to_best_static", "naive")["high"] < 1
    assert figure(rows, "selector_policy", "gap_recovered", "naive")["value"] < 0
    assert [(one.verifier, one.policy) for one in combinations(rows)] == [
        ("specinfer", "selector"), ("naive", "best_static"),
    ]  # fmt: skip
    assert {"gain", "loss"} <= Page(tmp_path).classes


def test_the_study_has_no_part_of_the_test_prompts(tmp_path: Path, profile: LatencyProfile) -> None:
    """Inputs are chosen by what it finds, so that other labels of the held-out prompts must not change it."""
    studies = []
    for held_out in (True, False):
        dataset = make_dataset(noise=0.1)
        chosen = torch.tensor([(prompt in TEST) == held_out for prompt in dataset.prompt_ids])
        for changed in (False, True):
            if changed:
                dataset.efficiency["specinfer"][chosen] = dataset.efficiency["specinfer"][chosen].flip(0, 2)
            folder = tmp_path / str(len(studies))
            evaluate([make_checkpoint()], dataset, profile, STUDIED, folder, test_prompts=TEST)
            studies.append((folder / "study.json").read_text())
    assert studies[0] == studies[1] == studies[2] != studies[3]


def test_the_report_names_settings_that_a_part_lacks(tmp_path: Path, profile: LatencyProfile) -> None:
    dataset = make_dataset()
    scored = [prompt in TEST for prompt in dataset.prompt_ids]
    dataset.settings[scored.index(True), 0] = 1.4
    dataset.settings[scored.index(False), 0] = 0.7
    evaluate([], dataset, profile, CONFIG, tmp_path, test_prompts=TEST)
    facts = dict(Page(tmp_path).table("Setting"))
    assert facts["settings without test prompts"] == "T 0.7, top-p 1"
    assert facts["settings without training prompts"] == "T 1.4, top-p 1"


def test_noise_alone_is_called_too_small_to_learn(tmp_path: Path, flat_profile: LatencyProfile) -> None:
    dataset = make_dataset(prompts=40, constant=2.0, noise=0.2)
    rows = evaluate([make_checkpoint()], dataset, flat_profile, STUDIED, tmp_path, test_prompts=TEST)
    assert figure(rows, "oracle", "ratio_to_best_static")["low"] <= 1
    low, high = (figure(rows, "selector", "ratio_to_best_static")[end] for end in ("low", "high"))
    assert low <= 1 <= high
    assert [one.policy for one in combinations(rows)] == ["best_static"], "no gain is shown"
    assert "even" in Page(tmp_path).classes
    assert evaluate_verifiers([], *split(dataset, TEST, None), flat_profile, CONFIG)[0].gap_too_small


def test_another_profile_changes_times_and_not_tokens(profile: LatencyProfile) -> None:
    double = tuple(tuple(2 * seconds for seconds in row) for row in profile.target_seconds)
    slower = replace(profile, target_seconds=double, plain_seconds=(0.02, 0.02))
    here, there = (rows_of([make_checkpoint()], make_dataset(), machine) for machine in (profile, slower))
    tokens = [figure(rows, "selector_policy", "block_efficiency")["value"] for rows in (here, there)]
    assert tokens[0] == pytest.approx(tokens[1])
    rates = [figure(rows, "selector_policy", "tokens_per_second")["value"] for rows in (here, there)]
    assert rates[0] > 1.2 * rates[1]


def test_the_regressor_decides_anew_on_another_machine(profile: LatencyProfile) -> None:
    """Where drafting is free it takes the longest tree, where a pass costs as much as the target's, depth 1."""
    checkpoint = make_checkpoint()
    checkpoint.network = EvenNetwork()
    chosen = []
    for seconds in (0.0, 0.01):
        machine = replace(profile, draft_seconds=((seconds, seconds), (seconds, seconds)))
        result = evaluate_verifiers([checkpoint], *split(make_dataset(), TEST, None), machine, CONFIG)[0]
        chosen.append({SPACE.expansions[a].max_depth for a in result.scores.outcomes["selector_regressor"].actions[0]})
    assert chosen == [{5}, {1}]


def test_seeds_of_one_verifier_are_averaged(profile: LatencyProfile) -> None:
    dataset = make_dataset()
    short, long = make_checkpoint(easy=(2, 0, 3)), make_checkpoint()
    alone = [figure(rows_of([one], dataset, profile), "selector_policy", "tokens_per_second") for one in (short, long)]
    both = figure(rows_of([short, long], dataset, profile), "selector_policy", "tokens_per_second")
    low, high = sorted(row["value"] for row in alone)
    assert low < both["value"] < high


def test_every_seed_is_told_with_its_interval(tmp_path: Path, profile: LatencyProfile) -> None:
    """Each seed's rows are those that an evaluation of it alone has, and the selector takes each by its own head."""
    metrics = {"learned": 1.0, "corrected": 0.0}
    seeds = [
        make_checkpoint(metrics=metrics),
        make_checkpoint(easy=(1, 0, 0), metrics=metrics | {"learned": 0.0}, default_head="regressor"),
        make_checkpoint(
            easy=(2, 0, 3),
            metrics=metrics | {"corrected": 1.0, "validation_ratio_to_static": 0.99},
            default_head="regressor",
        ),
    ]
    rows = evaluate(seeds, make_dataset(), profile, CONFIG, tmp_path, test_prompts=TEST)
    for policy in ("selector", "selector_policy", "selector_regressor"):
        for number, seed in enumerate(seeds, 1):
            alone = figure(rows_of([seed], make_dataset(), profile), policy, "ratio_to_best_static")
            told = figure(rows, policy, f"ratio_to_best_static_seed_{number}")
            assert {**told, "metric": "ratio_to_best_static"} == pytest.approx(alone)
    assert not any("_seed_" in row["metric"] for row in rows_of(seeds[:1], make_dataset(), profile))
    seen = [row[1:] for row in Page(tmp_path).table("Training seeds")]
    assert [(head, model, runs) for _, head, model, runs, _ in seen] == [
        ("policy", "ridge", "selector"), ("regressor", "static", "selector"), ("regressor", "mlp", "static tree"),
    ]  # fmt: skip
    ratios = [figure(rows, "selector", f"ratio_to_best_static_seed_{number}") for number in (1, 2, 3)]
    assert [ratio for ratio, *_ in seen] == [f"{Interval(row['value'], row['low'], row['high']):.3f}" for row in ratios]


def test_seeds_that_choose_alike_have_one_ratio(profile: LatencyProfile) -> None:
    rows = rows_of([make_checkpoint()] * 2, make_dataset(), profile)
    first, second = (figure(rows, "selector", f"ratio_to_best_static_seed_{number}") for number in (1, 2))
    assert first | {"metric": ""} == second | {"metric": ""}


def test_a_second_data_set_is_scored_whole(tmp_path: Path, profile: LatencyProfile) -> None:
    training, second = make_dataset(seed=1), make_dataset(prompts=6, seed=2)
    second.prompt_ids = [f"new-{name}" for name in second.prompt_ids]
    seeds = [make_checkpoint(), make_checkpoint(easy=(2, 0, 3))]
    rows = evaluate(seeds, second, profile, CONFIG, tmp_path, training=training)
    assert figure(rows, "plain", "tokens_per_second")["n_prompts"] == 6
    assert len(Page(tmp_path).table("Training seeds")) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verifier": "traversal"}, "labels for specinfer only"),
        ({"target_fingerprint": "x"}, "another target model"),
        ({"scalars": ["other"]}, "scalars"),
    ],
)
def test_checkpoints_that_do_not_fit_are_refused(
    tmp_path: Path, profile: LatencyProfile, changes: dict[str, object], message: str
) -> None:
    folder = tmp_path / "out"
    with pytest.raises(UserError, match=message):
        evaluate([make_checkpoint(**changes)], make_dataset(), profile, CONFIG, folder, test_prompts=TEST)
    assert not folder.exists()


def test_splits_without_prompts_are_refused(tmp_path: Path, profile: LatencyProfile) -> None:
    dataset = make_dataset()
    for prompts, message in ((["nobody"], "test prompts"), (None, "training prompts")):
        with pytest.raises(UserError, match=message):
            evaluate([], dataset, profile, CONFIG, tmp_path, test_prompts=prompts)
    with pytest.raises(UserError, match="test_data holds every prompt of the training data"):
        evaluate([], dataset, profile, CONFIG, tmp_path, training=dataset)
    smaller = make_dataset(seed=3)
    smaller.manifest.action_space = tuple(ActionSpace(2, 1, 3).limits)
    smaller.prompt_ids = ["other"] * len(smaller)
    with pytest.raises(UserError, match="action_space"):
        evaluate([], dataset, profile, CONFIG, tmp_path, training=smaller)


def test_console_table_fits_80_columns(profile: LatencyProfile) -> None:
    rows = rows_of([make_checkpoint()], make_dataset(noise=0.1), profile)
    screen = io.StringIO()
    print_rows(rows, Console(file=screen, width=80))
    text = screen.getvalue()
    assert "selector (regressor)" in text
    assert "…" not in text


@pytest.mark.parametrize("changes", [{"bootstrap": 0}, {"level": 1.0}, {"level": 0.0}, {"seed": -1}])
def test_senseless_settings_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(UserError, match=rf"^evaluate\.{next(iter(changes))} is "):
        replace(CONFIG, **changes)


def test_it_computes_with_one_thread_and_gives_the_others_back(
    tmp_path: Path, profile: LatencyProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pools of threads that wait for each other have made it thirty times slower."""
    seen, original = set(), report.evaluate_verifiers

    def watched(*arguments: object) -> object:
        seen.update({torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())})
        return original(*arguments)

    monkeypatch.setattr(report, "evaluate_verifiers", watched)
    with threadpool_limits(2):
        evaluate([], make_dataset(prompts=4), profile, CONFIG, tmp_path, test_prompts=TEST[:1])
        assert torch.get_num_threads() == 2
    assert seen == {1}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("alike", ["labels", "inputs", "labels and inputs"])
def test_data_without_differences_are_evaluated_without_warnings(
    tmp_path: Path, profile: LatencyProfile, alike: str
) -> None:
    """Data that were cut short: one task, one setting, few prompts, labels or inputs that are all alike."""
    dataset = make_dataset(prompts=12, constant=2.0 if "labels" in alike else None)
    dataset.tasks, dataset.settings = ["coding"] * len(dataset), dataset.settings[:1].repeat(len(dataset), 1)
    if "inputs" in alike:
        dataset.hidden = {name: torch.ones_like(block) for name, block in dataset.hidden.items()}
        dataset.scalars = dataset.scalars[:1].repeat(len(dataset), 1)
    rows = evaluate([make_checkpoint()] * 2, dataset, profile, STUDIED, tmp_path, test_prompts=TEST[:1])
    assert figure(rows, "boosting", "tokens_per_second")["value"] > 0
