"""The product on two tiny models: `ddte run` from pass times to checkpoints, `ddte decode` from what it exported."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from selector.cli.main import main
from selector.dataset.manifest import Manifest
from selector.decoding import pass_times
from selector.evaluation.metrics import METRICS
from selector.evaluation.report.prose import combinations
from selector.network.checkpoint import SelectorCheckpoint
from selector.pair_names import ModelName, PairNames
from selector.training.run_folder import RunFolder
from tests.support.disk_pair import save_pair
from tests.support.printed import follow, printed_commands

VERIFIERS = ["nss", "traversal"]
POLICIES = {
    "plain", "best_static", "best_static_per_setting", "best_chain", "best_root_branching",
    "selector_policy", "selector_regressor", "oracle",
}  # fmt: skip
TOKENS = 12


def configuration(folder: Path, prompt_file: str) -> Path:
    """A configuration file of all stages: six prompts, two sampling settings, seven trees."""
    pair = save_pair(folder / "models")
    sections = {
        "pair": {"target": pair.target, "draft": pair.draft, "dtype": "float32", "device": "cpu", "threads": 1},
        "action_space": {"num_branches": 2, "trunk_length": 1, "branch_length": 1},
        "generate": {
            "prompts": [prompt_file], "settings": [[0.6, 1.0], [1.0, 0.9]], "max_new_tokens": 9, "root_every": 3,
            "num_samples": 2, "verifiers": VERIFIERS, "chat_template": False,
        },
        "train": {"verifiers": VERIFIERS, "hidden_sizes": [8, 4], "max_epochs": 2},
        "evaluate": {"bootstrap": 20, "study": False},
        "decode": {"max_new_tokens": TOKENS},
    }  # fmt: skip
    path = folder / "pair.yaml"
    path.write_text(json.dumps(sections))
    return path


def written(folder: Path) -> dict[str, tuple[int, bytes]]:
    """When each file below `folder` was written, and what it holds; the lock of the data set aside."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def greedy(model_folder: Path, text: str) -> list[int]:
    """The target's own greedy continuation by transformers."""
    tokens = AutoTokenizer.from_pretrained(model_folder)(text, return_tensors="pt").input_ids
    model: Any = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    generated = model.generate(tokens, do_sample=False, max_new_tokens=TOKENS, pad_token_id=0)
    return list(generated[0, tokens.shape[1] :].tolist())


def test_the_chain(
    tmp_path: Path, prompt_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_times, "TRIES", 1)  # other work may disturb; the figures are not looked at
    config, out = configuration(tmp_path, prompt_file), tmp_path / "run"
    command = ["run", "--config", str(config), "--out", str(out), "--decode.seed", "3"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    for verifier in VERIFIERS:
        assert (out / "checkpoints" / verifier / "model.safetensors").exists()
        assert verifier in printed
    assert (out / "report" / "report.html").stat().st_size > 0

    rows = json.loads((out / "report" / "metrics.json").read_text())
    policies = {row["policy"] for row in rows}
    assert policies >= POLICIES
    found = [(row["verifier"], row["policy"], row["metric"]) for row in rows]
    assert sorted(found) == sorted((v, p, m) for v in VERIFIERS for p in policies for m in METRICS)
    for row in rows:
        figures = [row["value"], row["low"], row["high"]]
        undefined = row["metric"] == "gap_recovered" and figures == [None] * 3
        assert undefined or all(math.isfinite(figure) for figure in figures), row
        assert undefined or row["low"] <= row["high"], row
        assert row["n_prompts"] > 0

    models = (ModelName(str(tmp_path / "models" / role)) for role in ("target", "draft"))
    names = PairNames(*models, dtype="float32")
    assert Manifest.load(out / "data").models == names
    assert RunFolder(out / "train").info.models == names
    assert SelectorCheckpoint.load(out / "checkpoints" / "nss").config.models == names

    assert printed.splitlines()[-1].startswith("On this machine: use ")
    (printed_command,) = printed_commands(printed)
    before = written(out)
    assert main(command) == 0
    assert written(out) == before, "a second call makes nothing again"

    text = "w7 w3 w11"
    question = tmp_path / "question.jsonl"
    question.write_text(json.dumps({"id": "a", "task": "t", "messages": [{"role": "user", "content": text}]}))
    for verifier in VERIFIERS:
        answers, checkpoint = tmp_path / f"{verifier}.jsonl", out / "checkpoints" / verifier
        decode = ["decode", "--config", str(config), "--checkpoint", str(checkpoint), "--prompts", str(question)]
        assert main([*decode, "--out", str(answers), "--decode.guard", "false"]) == 0
        answer = json.loads(answers.read_text())
        assert answer["tokens"] == greedy(tmp_path / "models" / "target", text)
        assert answer["statistics"]["tokens"] == len(answer["tokens"])

    assert Path(printed_command[7]).name == combinations(rows)[0].verifier
    assert printed_command[:6] == ["ddte", "decode", "--config", str(config), "--decode.seed", "3"]
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    capsys.readouterr()
    for command in (printed_command[1:-1], ["decode", *printed_command[6:-1]]):
        assert main([*command, text, f"--decode.max_new_tokens={TOKENS}", "--decode.temperature=0"]) == 0
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "models" / "target")
        expected = tokenizer.decode(greedy(tmp_path / "models" / "target", text), skip_special_tokens=True)
        assert capsys.readouterr().out.split() == expected.split()


@pytest.mark.slow
def test_every_printed_command_works_when_pasted(
    tmp_path: Path, prompt_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an empty folder, the pair and all settings given by flags; names have blanks. `test_shipped` has a file."""
    monkeypatch.setattr(pass_times, "TRIES", 1)
    save_pair(tmp_path / "my models")
    empty = tmp_path / "an empty folder"
    empty.mkdir()
    monkeypatch.chdir(empty)
    settings = {
        "pair.target": "../my models/target", "pair.dtype": "float32", "pair.device": "cpu", "pair.threads": 1,
        "distill.layers": [0], "distill.head_tokens": 0, "distill.token_budget": 60, "distill.holdout_tokens": 20,
        "distill.sampling_batch": 4, "distill.new_tokens": 8, "distill.top_tokens": 4, "distill.epochs": 1,
        "distill.total_variation_epochs": 0, "generate.prompts": [prompt_file], "generate.settings": [[0.6, 1.0]],
        "generate.max_new_tokens": 6, "generate.root_every": 3, "generate.num_samples": 2,
        "generate.verifiers": ["nss"], "generate.chat_template": False, "action_space.num_branches": 2,
        "action_space.trunk_length": 1, "action_space.branch_length": 1, "train.hidden_sizes": [8, 4],
        "train.max_epochs": 1, "evaluate.bootstrap": 20, "evaluate.study": False, "decode.max_new_tokens": 4,
    }  # fmt: skip
    flags = [f"--{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]

    def run(command: list[str]) -> str:
        assert main(command[1:]) == 0, command
        return capsys.readouterr().out

    ran = follow(["ddte", "distill", *flags, "--out", "my draft"], run)
    verbs = [command[1] for command in ran]
    assert verbs == ["distill", "generate", "profile", "train", "evaluate", "export", "decode"]
    assert Manifest.load(empty / "data").models.draft.name == str(empty / "my draft")
    assert SelectorCheckpoint.load(empty / "checkpoints" / "nss").config.models.target.name.endswith("my models/target")
