"""The bench command: settings, names of arms, exit codes, and what is refused before models are loaded."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from selector.bench import decode as bench
from selector.bench.decode import bench_settings, bench_times, parts_of
from selector.bench.step_arms import arm_names, step_arms
from selector.bench.tables import bench_table, exit_code, part_table
from selector.cli.main import main
from selector.config import DecodeConfig
from selector.decoding import pass_times
from selector.decoding.policies import parse_policy
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.errors import UserError
from tests.support.disk_pair import save_pair
from tests.support.profiles import make_profile
from tests.support.scripted_selectors import make_checkpoint
from tests.support.small_runs import small_config

QUIET = Console(quiet=True)


def checkpoint(verifier: str) -> SimpleNamespace:
    return SimpleNamespace(config=SimpleNamespace(verifier=verifier))


def test_all_decoding_settings_are_measured() -> None:
    settings = DecodeConfig(temperature=0.7, top_p=0.9, top_k=40)
    assert bench_settings([], settings) == [Sampling.of(settings)] == [Sampling(0.7, 0.9, 40)]
    assert bench_settings([(1.0, 0.5)], settings) == [Sampling(1.0, 0.5, 40)]


def test_checkpoints_of_one_verifier_are_told_apart() -> None:
    folders = [Path("runs/a/nss"), Path("runs/b/nss"), Path("runs/a/bv")]
    names = arm_names(folders, [checkpoint("nss"), checkpoint("nss"), checkpoint("bv")])
    assert names == ["nss runs/a/nss", "nss runs/b/nss", "bv"]


@pytest.mark.parametrize(
    ("policy", "ratio", "names"),
    [
        ("auto", 1.1, ["nss selector", "nss static (2, 0, 2)"]),
        ("auto", 0.9, ["nss selector (did not pay in training)", "nss static (2, 0, 2)"]),
        ("regressor", 0.9, ["nss selector's regressor head", "nss static (2, 0, 2)"]),
        ("(2, 1, 1)", 1.1, ["nss static (2, 1, 1)", "nss static (2, 0, 2)"]),
        ("(2, 0, 2)", 0.9, ["nss static (2, 0, 2)"]),
    ],
)
def test_names_say_what_runs(policy: str, ratio: float, names: list[str]) -> None:
    metrics = {"validation_ratio_to_static": ratio}
    selector = make_checkpoint(verifier="nss", best_static=(2, 0, 2), metrics=metrics)
    arms = step_arms([Path("nss")], [selector], [], "nss", make_profile(), policy)
    assert [arm.name for arm in arms] == ["no drafting", *names]


def test_rules_are_opponents_of_selectors_and_have_the_static_tree_for_one() -> None:
    rule, other = parse_policy("match 2: copy 4 | (2, 0, 1), else (2, 0, 1)"), parse_policy("copy 4")
    arms = {
        arm.name: arm
        for arm in step_arms([Path("nss")], [make_checkpoint(verifier="nss")], [rule, other], "nss", make_profile())
    }
    title = "nss rule match 2: copy 4 | (2, 0, 1), else (2, 0, 1)"
    static = next(name for name in arms if name.startswith("nss static ("))
    assert arms[title].against == static
    assert {arm.rule for name, arm in arms.items() if "selector" in name} == {title}
    assert arms["nss static copy 4"].against is None
    with pytest.raises(UserError, match="drafts beside a copied token"):
        step_arms([], [], [rule], "rbv", make_profile())


def test_parts_are_tasks_and_settings_where_there_are_several() -> None:
    cool, hot = Sampling(0.6), Sampling(1.0)
    assert parts_of(["coding", "writing", "coding"], [cool, hot]) == {
        "coding": {(0, 0), (0, 1), (2, 0), (2, 1)},
        "writing": {(1, 0), (1, 1)},
        "temperature 0.6, top-p 1": {(0, 0), (1, 0), (2, 0)},
        "temperature 1, top-p 1": {(0, 1), (1, 1), (2, 1)},
    }
    assert parts_of(["coding"], [cool]) == {}


def test_names_are_seen_on_a_narrow_terminal() -> None:
    output, ends = io.StringIO(), {"": 1.234, "_low": 1.123, "_high": 12.345}
    row: dict[str, Any] = {
        "arm": "traversal selector",
        "steps": 12345,
        "tokens_per_second": 123.4,
        "tokens_a_step": 1.5,
    }
    for name in ("plain", "no_drafting", "static", "rule"):
        row |= {f"ratio_to_{name}{end}": value for end, value in ends.items()}
    console = Console(file=output, width=80)
    console.print(bench_table([row | {"overhead_share": 0.5}]))
    console.print(part_table([row | {"part": "temperature 0.6, top-p 1"}]))
    assert output.getvalue().count("traversal") == 2
    assert output.getvalue().count("1.23 [1.12, 12.35]") == 4


def test_arms_that_copy_take_more_steps() -> None:
    rule = parse_policy("match 2: copy 4, else (2, 0, 1)")
    arms = step_arms([Path("nss")], [make_checkpoint(verifier="nss")], [rule], "nss", make_profile())
    assert {arm.name: arm.weight for arm in arms if arm.weight != 1} == {f"nss rule {rule}": 3}


def test_a_profile_of_another_machine_is_named(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    pair: Any = SimpleNamespace(target=target, draft=draft, dtype=torch.float32)
    with pytest.warns(UserWarning, match="the profile has pass times of another kind .device is toy"):
        assert bench_times(make_profile(), pair, [], small_config([])) == make_profile()


@pytest.mark.parametrize(
    ("ratios", "required", "code"),
    [([None, None], None, 1), ([None, 0.5], None, 0), ([0.5, 1.4], 1.5, 1), ([0.5, 1.4], 1.2, 0)],
)
def test_exit_codes(ratios: list[float | None], required: float | None, code: int) -> None:
    assert exit_code([{"ratio_to_plain": ratio} for ratio in ratios], required, QUIET) == code


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--decode.max_new_tokens", "0"], "decode.max_new_tokens is 0"),
        (["--verifier", "nns"], "verifier is 'nns'"),
        (["--json", f"{__file__}/rows.json"], "json is"),
        (["--json", "/"], "which is a folder"),
        (["--checkpoint", '["one", "two", "one"]'], "'one' twice"),
        (["--evaluate.level", "95"], "evaluate.level is 95"),
        (["--until_width", "-1"], "until_width is -1.0"),
        (["--until_width", "0"], "until_width is 0.0"),
        (["--steps", "0"], "steps is 0"),
        (["--texts", "0"], "texts is 0"),
    ],
)
def test_refused_before_the_models_are_loaded(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "load_pair", None)
    assert main(["bench", "decode", "--static", '["(2, 0, 2)"]', *flags]) == 2
    assert named in capsys.readouterr().err


def test_static_trees_take_turns_on_a_pair_from_disk(
    tmp_path: Path, prompt_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of all arms; this machine's pass times are measured once and kept."""
    monkeypatch.setattr(pass_times, "TRIES", 1)
    monkeypatch.setenv("DDTE_CACHE", str(tmp_path / "cache"))
    pair = save_pair(tmp_path)
    flags = ["--pair.target", pair.target, "--pair.draft", pair.draft, "--generate.chat_template", "false"]
    flags += ["--prompts", json.dumps([prompt_file]), "--static", '["(1, 0, 1)", "(2, 0, 2)"]', "--texts", "2"]
    flags += ["--steps", "15", "--settings", "[[0.6, 1.0], [1.0, 1.0]]", "--decode.max_new_tokens", "12"]
    flags += ["--evaluate.bootstrap", "50", "--pair.threads", "1", "--json", str(tmp_path / "rows.json")]
    assert main(["bench", "decode", *flags]) == 0
    rows = {row["arm"]: row for row in json.loads((tmp_path / "rows.json").read_text())}
    trees = ["traversal static (1, 0, 1)", "traversal static (2, 0, 2)"]
    assert list(rows) == ["plain", "assisted", "prompt lookup", "no drafting", *trees]
    assert all(rows[arm]["steps"] >= 15 for arm in ("no drafting", *trees))
    assert rows["no drafting"]["tokens_a_step"] == 1
    assert all(rows[arm]["tokens_a_step"] > 1 for arm in trees)
    assert not any(rows[arm]["failures"] for arm in ("plain", "assisted", "prompt lookup"))
    (profile,) = (tmp_path / "cache" / "profiles").iterdir()
    before = profile.stat().st_mtime_ns
    assert main(["bench", "decode", *flags, "--until-width", "1e9", "--steps", "400"]) == 0
    assert profile.stat().st_mtime_ns == before
    capsys.readouterr()
