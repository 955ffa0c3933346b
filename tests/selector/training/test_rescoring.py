"""Labels hold no time: another machine's profile changes choices, and no language model is loaded for it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from selector.latency import LatencyProfile
from selector.training.fit import train
from tests.support.profiles import COSTLY_DRAFT
from tests.support.synthetic_data import CONFIG, write_dataset

# drafting is almost free on one machine; on the other a pass over more tokens costs as much as so many passes
FREE = replace(COSTLY_DRAFT, draft_seconds=((1e-5, 1e-5), (1e-5, 1e-5)), target_seconds=((0.02, 0.02), (0.02, 0.02)))
DEAR = replace(COSTLY_DRAFT, draft_seconds=((0.01, 0.02), (0.01, 0.02)), target_seconds=((0.02, 0.16), (0.02, 0.16)))


def evaluated(folder: Path, name: str, profile: LatencyProfile) -> dict[tuple[str, str], float]:
    """Values of metrics.json by policy and metric, from the command line without transformers."""
    profile.save(folder / f"{name}.json")
    arguments = ["evaluate", "--run", "run", "--data", "data", "--profile", f"{name}.json", "--out", name]
    arguments += ["--evaluate.bootstrap", "50", "--evaluate.study", "false"]
    code = (
        "import sys\nsys.modules['transformers'] = None\n"
        f"from selector.cli.main import main\nsys.exit(main({arguments!r}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    rows = json.loads((folder / name / "metrics.json").read_text())
    return {(row["policy"], row["metric"]): row["value"] for row in rows}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rescoring")
    write_dataset(folder / "data", prompts=40, roots=8)
    train(folder / "data", COSTLY_DRAFT, replace(CONFIG, max_epochs=2), folder / "run", Console(quiet=True))
    return folder


def test_evaluation_answers_for_another_machine(folder: Path) -> None:
    free, dear = (evaluated(folder, name, profile) for name, profile in (("free", FREE), ("dear", DEAR)))
    for policy in ("best_static", "selector_regressor", "oracle"):
        assert free[policy, "block_efficiency"] > 1.2 * dear[policy, "block_efficiency"], policy
    assert free["selector_regressor", "tokens_per_second"] > dear["selector_regressor", "tokens_per_second"]
    # the policy head knows the machine of training only
    assert free["selector_policy", "block_efficiency"] == dear["selector_policy", "block_efficiency"]


def test_training_for_another_machine_learns_other_trees(folder: Path) -> None:
    depths = []
    for name, profile in (("for-free", FREE), ("for-dear", DEAR)):
        run = train(folder / "data", profile, replace(CONFIG, max_epochs=2), folder / name, Console(quiet=True))
        depths.append(run.selector("naive").best_static.max_depth)
    assert depths[0] == 5, "where drafting costs nothing the deepest tree is best"
    assert depths[1] <= 1
