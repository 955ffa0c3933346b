"""Block efficiency of verifiers on a data set: means, paired differences, the markdown that is published."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from selector.bench.block_efficiency import markdown, mean_efficiencies
from selector.cli.main import main
from selector.config import EvaluateConfig
from selector.errors import UserError
from selector.trees.expansion import Expansion
from tests.support.synthetic_data import SPACE, make_dataset, write_dataset

ACTIONS = [Expansion(2, 0, 2), Expansion(2, 1, 3)]
CONFIG = EvaluateConfig(bootstrap=400)


@pytest.fixture
def dataset():
    """`nss` is 0.1 tokens below `bv` at every root, `rbv` level with it on average."""
    made = make_dataset(verifiers=("nss", "bv", "rbv"))
    made.efficiency["nss"] = made.efficiency["bv"] - 0.1
    noise = torch.tensor(np.random.default_rng(1).standard_normal(len(made)), dtype=torch.float32)
    made.efficiency["rbv"] = made.efficiency["bv"] + 0.2 * (noise - noise.mean() - 1e-3)[:, None, None]
    return made


def test_means_and_paired_differences(dataset) -> None:
    means = mean_efficiencies(dataset, ACTIONS, CONFIG)
    assert [(mean.verifier, mean.action) for mean in means] == [(v, a) for a in ACTIONS for v in ("nss", "bv", "rbv")]
    for mean in means:
        labels = dataset.efficiency[mean.verifier].mean(1)[:, SPACE.index(mean.action)]
        assert mean.efficiency.value == pytest.approx(float(labels.mean()))
        assert mean.efficiency.low < mean.efficiency.value < mean.efficiency.high
    nss, bv, rbv = means[:3]
    assert bv.to_best == (0.0, 0.0, 0.0)
    assert nss.to_best == pytest.approx((-0.1, -0.1, -0.1), abs=1e-6)  # pairing leaves no spread
    assert rbv.to_best.value == pytest.approx(-2e-4, abs=1e-6)
    assert rbv.to_best.low < -0.01 < 0.01 < rbv.to_best.high


def test_prompts_are_resampled_not_roots() -> None:
    """Roots of a prompt that are all alike are worth one root."""
    few, many = (make_dataset(prompts=12, roots=roots) for roots in (1, 20))
    for dataset in (few, many):
        place = torch.tensor([int(name[-3:]) for name in dataset.prompt_ids])
        dataset.efficiency["specinfer"] = (1 + place / 10.0)[:, None, None].expand(len(place), 2, len(SPACE))
    spreads = [mean_efficiencies(dataset, ACTIONS[:1], CONFIG)[0].efficiency for dataset in (few, many)]
    assert spreads[0] == pytest.approx(spreads[1])


def test_markdown(dataset) -> None:
    text = markdown(mean_efficiencies(dataset, ACTIONS, CONFIG), dataset, CONFIG)
    lines = text.splitlines()
    assert lines[0].startswith("Tokens a step, mean over 192 roots of 24 prompts; 95% intervals")
    tables = [line for line in lines if line.startswith("|")]
    assert len(tables) == 2 * (2 + 3)
    assert {line.count("|") for line in tables} == {4}
    assert tables[0] == "| verifier | `(2, 0, 2)` | `(2, 1, 3)` |"
    assert tables[3].startswith("| `bv` | **")
    assert tables[8] == "| `bv` | – | – |"
    assert tables[7].startswith("| `nss` | −0.100 [−0.100, −0.100] |")
    assert lines[-1] == "- `(2, 1, 3)`: best `bv`; not surely behind: `rbv`."


def test_one_verifier_and_one_prompt() -> None:
    dataset = make_dataset()
    assert markdown(mean_efficiencies(dataset, ACTIONS, CONFIG), dataset, CONFIG).endswith(
        "all others are surely behind."
    )
    with pytest.raises(UserError, match="data holds roots of 1 prompt"):
        mean_efficiencies(make_dataset(prompts=1), ACTIONS, CONFIG)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dataset(tmp_path / "data", prompts=6, roots=3, verifiers=("naive", "bv"))
    command = ["bench", "efficiency", "--data", str(tmp_path / "data"), "--json", str(tmp_path / "rows.json")]
    assert main([*command, "--actions", '["(2, 0, 2)", "1,0,3"]']) == 0
    assert "| `naive` |" in capsys.readouterr().out
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["verifier"], row["action"]) for row in rows] == [
        (verifier, action) for action in ("(2, 0, 2)", "(1, 0, 3)") for verifier in ("naive", "bv")
    ]
    assert all(row["efficiency_low"] <= row["efficiency_value"] <= row["efficiency_high"] for row in rows)


def test_trees_by_default_are_labelled_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dataset(tmp_path / "data", prompts=6, roots=3, verifiers=("naive", "bv"))
    assert main(["bench", "efficiency", "--data", str(tmp_path / "data")]) == 0
    assert str(SPACE.expansions[-1]) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--actions", '["(4, 0, 4)"]'], "expansion (4, 0, 4) is outside"),
        (["--actions", "[]"], "actions is empty"),
        (["--actions", '["x"]'], "expansion is 'x'"),
        (["--data", "nowhere"], "nowhere"),
        (["--evaluate.level", "95"], "evaluate.level is 95"),
        (["--json", "/"], "which is a folder"),
    ],
)
def test_refused(flags: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dataset(tmp_path / "data", prompts=2, roots=1)
    assert main(["bench", "efficiency", "--data", str(tmp_path / "data"), *flags]) == 2
    assert named in capsys.readouterr().err
