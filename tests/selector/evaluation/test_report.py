"""The report: complete, in one file, the answer first; and the answer itself, from rows."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from selector.config import EvaluateConfig
from selector.evaluation.evaluate import evaluate
from selector.evaluation.report.prose import answer, combinations
from selector.latency import LatencyProfile
from selector.pair_names import EMBEDDED, ModelName, PairNames
from tests.support.page import Page
from tests.support.profiles import make_disturbed_profile, make_profile
from tests.support.scripted_selectors import make_checkpoint
from tests.support.synthetic_data import make_dataset

TEST = [f"prompt-{number:03d}" for number in range(0, 24, 3)]
VERIFIERS = ("specinfer", "naive")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A studied selector of one verifier, none of the other; `writing` was not sampled greedily."""
    folder = tmp_path_factory.mktemp("report")
    dataset = make_dataset(noise=0.1, verifiers=VERIFIERS)
    dataset.manifest.models = PairNames(EMBEDDED, ModelName("/models/drafts/small", licence="mit"), dtype="float32")
    for row, task in enumerate(dataset.tasks):
        if task == "writing":
            dataset.settings[row] = dataset.settings.new_tensor([1.0, 0.9])
    evaluate([make_checkpoint()], dataset, make_profile(), EvaluateConfig(bootstrap=50), folder, test_prompts=TEST)
    return Page(folder)


def test_it_is_one_file(page: Page) -> None:
    assert page.outside == []
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", page.source)


def test_the_title_names_pair_machine_and_date(page: Page) -> None:
    assert all(name in page.headings[0] for name in ("SmolLM2-135M-Instruct", "drafts/small"))
    title = page.source[page.source.index("<title>") : page.source.index("</title>")]
    assert all(name in title for name in ("SmolLM2-135M-Instruct", "drafts/small", "toy", str(date.today())))
    opening = page.source[page.source.index("</h1>") : page.source.index('id="answer"')]
    assert "toy" in opening
    assert re.search(r"\d{4}-\d\d-\d\d", opening)


def test_disturbed_pass_times_stand_below_the_answer(page: Page, tmp_path: Path) -> None:
    dataset, busy = make_dataset(prompts=8), make_disturbed_profile()
    with pytest.warns(UserWarning, match="evaluated under disturbed pass times: a pass of the draft over 1 rows took"):
        evaluate([], dataset, busy, EvaluateConfig(bootstrap=20), tmp_path, test_prompts=TEST[:2])
    assert str(busy.disturbance()) in Page(tmp_path).source
    assert 'id="disturbed"' not in page.source


def test_the_setting_names_both_models(page: Page) -> None:
    (rows,) = [rows for title, rows in page.tables if title == "Setting"]
    facts = dict(rows)
    assert facts["target"].endswith("licence apache-2.0; fingerprint t")
    assert facts["draft"] == "/models/drafts/small; licence mit; fingerprint d"
    assert facts["type of weights"] == "float32"


def test_unnamed_models_are_called_by_their_fingerprints(tmp_path: Path, profile: LatencyProfile) -> None:
    dataset = make_dataset(prompts=8)
    dataset.manifest.target_fingerprint = "0123abcd"
    evaluate([], dataset, profile, EvaluateConfig(bootstrap=20), tmp_path, test_prompts=TEST[:2])
    assert "0123abcd" in Page(tmp_path).headings[0]


def test_the_answer_stands_before_pictures_and_tables(page: Page) -> None:
    order = [page.source.index(mark) for mark in ("<h1", 'id="answer"', "<nav", "<svg", "<table")]
    assert order == sorted(order)


def test_every_link_leads_somewhere_and_every_id_is_its_own(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert {"#overview", "#verifiers", "#setting", *(f"#{name}" for name in VERIFIERS)} <= set(page.links)


def test_every_verifier_has_its_tables_and_pictures(page: Page) -> None:
    assert {row[0] for row in page.table("Verifiers, the fastest first")} == set(VERIFIERS)
    assert sum(title == "Policies" for title, _ in page.tables) == 2
    assert page.pictures.count("Tokens and time of a step") == 2
    assert page.pictures.count("What the linear model learns from") == 1, "the one that has a selector"
    assert {len(row) for title, rows in page.tables for row in rows if title == "Policies"} == {9}


def test_cells_without_prompts_are_named(page: Page) -> None:
    coding, writing = page.table("Selector over best static by task and setting")
    assert coding[0] == "coding"
    assert writing[1] == "not measured at these settings"
    assert not any("not measured" in cell for cell in [*coding, writing[2]])


def rows_like(**ratios: tuple[float, float, float]) -> list[dict[str, Any]]:
    """Rows of verifiers whose selector has a ratio to the best static tree, itself 1.5 times plain."""
    rows = []
    for verifier, (value, low, high) in ratios.items():
        figures = {
            ("plain", "ratio_to_plain"): (1.0, 1.0, 1.0), ("no_drafting", "ratio_to_plain"): (1.25, 1.2, 1.3),
            ("best_static", "ratio_to_plain"): (1.5, 1.4, 1.6),
            ("best_static", "tokens_per_second"): (15.0, 14.0, 16.0),
            ("selector", "ratio_to_plain"): (1.5 * value, 1.5 * low, 1.5 * high),
            ("selector", "tokens_per_second"): (15 * value, 15 * low, 15 * high),
            ("selector", "ratio_to_best_static"): (value, low, high),
            ("selector", "ratio_to_best_verifier_static"): (value, low, high),
        }  # fmt: skip
        for (policy, metric), interval in figures.items():
            own = dict(zip(("value", "low", "high"), interval, strict=True))
            rows.append({"verifier": verifier, "policy": policy, "metric": metric, **own, "n_prompts": 40})
    return rows


def test_a_selector_is_recommended_where_it_surely_gains() -> None:
    rows = rows_like(unsure=(1.5, 0.9, 1.7), good=(1.08, 1.04, 1.12), better=(1.2, 1.1, 1.3), worse=(0.8, 0.7, 0.9))
    found = [(one.verifier, one.policy) for one in combinations(rows)]
    assert found[:2] == [("better", "selector"), ("good", "selector")], "the fastest first"
    assert sorted(found[2:]) == [("unsure", "best_static"), ("worse", "best_static")]
    text = answer(rows)
    for part in ("better", "1.80 [1.65, 1.95]", "1.25", "1.20 [1.10, 1.30]"):
        assert part in text
    assert "unsure" not in text


def test_plain_decoding_is_recommended_where_nothing_is_surely_faster() -> None:
    rows = rows_like(one=(1.0, 0.9, 1.1))
    for row in rows:
        if row["metric"] == "ratio_to_plain" and row["policy"] != "plain":
            row |= {"value": 1.1, "low": 0.9, "high": 1.2}
    assert answer(rows).startswith("use plain decoding")


def test_few_prompts_are_said() -> None:
    rows = rows_like(one=(1.2, 1.1, 1.3))
    assert "40" not in answer(rows)
    assert "test prompts" in answer([row | {"n_prompts": 6} for row in rows])
