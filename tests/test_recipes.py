"""The recipes for other pairs than the embedded one: what they take, and the chain on small models of the kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from accelerate import infer_auto_device_map
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_gen.estimate import estimate
from data_gen.prompts.hub_sets import HUB_SETS
from ddte.configuration import load_config
from selector.cli.main import main
from selector.config import PAPER_SETTINGS, Config
from selector.engine.huggingface import placement
from selector.engine.prompts import encode_chat
from tests.support.families import RECIPES, on_meta, save_small_pair
from tests.support.profiles import make_profile

TOKENS = 8  # of an answer
CONFIGS = Path(__file__).parents[1] / "configs"
GIB = 2**30
SMALL_RUN = {
    "pair.dtype": "float32", "pair.device": "cpu", "pair.max_memory": {}, "pair.draft_device": "same",
    "action_space.num_branches": 2, "action_space.trunk_length": 1, "action_space.branch_length": 1,
    "generate.prompts_per_task": 2, "generate.max_new_tokens": 6, "generate.root_every": 3, "generate.num_samples": 2,
    "generate.verifiers": ["specinfer", "traversal"], "train.verifiers": ["specinfer", "traversal"],
    "train.hidden_sizes": [8, 4], "train.max_epochs": 1, "train.test_share": 0.2,
    "evaluate.bootstrap": 20, "evaluate.study": False, "decode.max_new_tokens": TOKENS, "decode.temperature": 0,
}  # fmt: skip
RECIPE = pytest.mark.parametrize("name", RECIPES)


def recipe_config(name: str, **pair: Any) -> Config:
    config = load_config(CONFIGS / f"{name}.yaml")
    return replace(config, pair=replace(config.pair, **pair))


def test_every_recipe_is_here() -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == {*RECIPES, "smollm2-135m", "quick"}


@RECIPE
def test_the_setting_of_the_paper(name: str) -> None:
    config = recipe_config(name)
    assert config.action_space.limits == (4, 8, 8)
    assert {tuple(setting) for setting in config.generate.settings} == set(PAPER_SETTINGS)
    assert config.generate.prompts == ["math500", "olympiadbench", "livecodebench", "litbench", "opus"]
    assert (config.generate.prompts_per_task, config.train.test_share) == (400, 50 / 400)


@RECIPE
def test_sizes_of_the_table(name: str, tmp_path: Path) -> None:
    """Each row of the table is what the estimate and the models' true shapes say; the weights fit the cards."""
    recipe = RECIPES[name]
    for role, shapes in zip(("target", "draft"), recipe.true, strict=True):
        (tmp_path / role).mkdir()
        (tmp_path / role / "config.json").write_text(json.dumps(shapes))
    config = recipe_config(name, target=str(tmp_path / "target"), draft=str(tmp_path / "draft"))
    found = estimate(config, 5 * 400, tmp_path)
    shapes = recipe.true[0].get("text_config", recipe.true[0])
    width = shapes.get("head_dim", shapes["hidden_size"] // shapes["num_attention_heads"])
    cached = 4 * shapes["num_hidden_layers"] * shapes["num_key_value_heads"] * width / 2**20
    models = [on_meta(kind, shapes) for kind, shapes in zip(recipe.kinds, recipe.true, strict=True)]
    weights = [sum(2 * weight.numel() for weight in model.parameters()) / GIB for model in models]
    row = f"| `{name}.yaml` | {found.units:,} | {found.roots:,} | {found.bytes_per_root / 1000:.1f} | "
    row += f"{found.total_bytes / 1e9:.2f} GB | {weights[0]:.1f} | {weights[1]:.1f} | {cached:.2f} |"
    assert row in (CONFIGS / "README.md").read_text("utf-8").splitlines()
    assert sum(weights) + 4096 * cached / 1024 < 0.93 * sum(recipe.cards)


def test_llama_3_70b_lies_on_two_cards_beside_its_draft() -> None:
    """accelerate's own placement of the true shapes, under the recipe's limits: nothing is left for CPU or disk."""
    recipe, pair = RECIPES["llama-3-70b"], recipe_config("llama-3-70b").pair
    assert (pair.device, pair.draft_device) == ("map", "cuda:0")
    target, draft = (on_meta(kind, shapes) for kind, shapes in zip(recipe.kinds, recipe.true, strict=True))
    limits = placement(pair, torch.device("cpu"))["max_memory"]
    assert limits == {0: "60GiB", 1: "76GiB", "cpu": "0GiB"}
    places = infer_auto_device_map(target, dict(limits), target._no_split_modules, dtype=torch.bfloat16)
    used = {0: sum(2 * weight.numel() for weight in draft.parameters()), 1: 0}
    for name, weight in target.named_parameters():
        used[next(places[start] for start in places if f"{name}.".startswith(f"{start}."))] += 2 * weight.numel()
    assert sum(used.values()) == 2 * (70_553_706_496 + 8_030_261_248)
    assert max(used.values()) <= 76 * GIB  # a card of 80 GB has 79 GiB; the cache of 4,096 tokens takes 1.3 GiB


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The five sets as local files of the same columns; a column that nobody asked for stands beside them."""
    folder = tmp_path_factory.mktemp("hub")
    columns: dict[str, Any] = {
        "problem": "What is w{n} + w1?", "question": "Prove that w{n} is odd.", "prompt": "[WP] A tale of w{n}.",
        "question_content": "Print w{n}.", "starter_code": "def f():",
        "english": "There are w{n} birds on the roof.", "non_english": "Ci sono w{n} uccelli sul tetto.",
    }  # fmt: skip
    for part in {(part.path, part.config): part for task in HUB_SETS.values() for part in task.parts}.values():
        rows = []
        for number in range(4):
            row: dict[str, Any] = {key: columns[key].format(n=number) for key in part.columns if key in columns} | {
                "private_test_cases": "pickle"
            }
            if "translation" in part.columns:
                assert part.config is not None
                row["translation"] = {key: f"The page {number} of a book in {key}." for key in part.config.split("-")}
            rows.append(row)
        path = folder / part.path / (part.config or "default") / f"{part.split}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(map(json.dumps, rows)))
    return folder


def local_loader(folder: Path) -> Any:
    """`datasets.load_dataset` of the files in `folder`."""
    load = datasets.load_dataset

    def load_dataset(path: str, config: str | None, split: str, **options: Any) -> Any:
        assert options["streaming"]
        return load(str(folder / path / (config or "default")), split=split, streaming=True)

    return load_dataset


@pytest.mark.slow
@RECIPE
def test_the_chain(name: str, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Data, training, evaluation and export by the recipe, made small; then decoding, without a loss."""
    monkeypatch.setattr(datasets, "load_dataset", local_loader(hub))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DDTE_CACHE", str(tmp_path / "cache"))
    recipe = RECIPES[name]
    save_small_pair(recipe, tmp_path)
    make_profile().save(tmp_path / "profile.json")
    settings = SMALL_RUN | {"pair.target": "./target", "pair.draft": "./draft"}
    flags = [f"--{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]
    given = ["--config", str(CONFIGS / f"{name}.yaml"), *flags]
    data, run = ["--data", "data", "--profile", "profile.json"], ["--run", "run"]
    assert main(["generate", *given, "--out", "data"]) == 0
    units = json.loads(Path("data/manifest.json").read_text())["units"]
    assert len(units) == 10
    assert {unit["status"] for unit in units} == {"done"}, [unit["error"] for unit in units]
    assert main(["train", *given, *data, "--out", "run"]) == 0
    assert main(["evaluate", *given, *run, *data[:2], "--out", "report"]) == 0
    assert main(["export", *run, "--out", "out"]) == 0

    capsys.readouterr()
    assert main(["decode", *given, "--checkpoint", "out/traversal", "--prompt", "You are w7"]) == 0
    tokenizer = AutoTokenizer.from_pretrained("target")
    tokens = encode_chat(tokenizer, [{"role": "user", "content": "You are w7"}])
    assert tokens.count(0) == (recipe.family.bos is not None)  # not doubled
    model: Any = AutoModelForCausalLM.from_pretrained("target", dtype=torch.float32)
    prompt = torch.tensor([tokens])
    given_whole = {"attention_mask": torch.ones_like(prompt), "pad_token_id": 0}
    plain = model.generate(prompt, do_sample=False, max_new_tokens=TOKENS, **given_whole)
    text = tokenizer.decode(plain[0, len(tokens) :], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert capsys.readouterr().out.strip() == text.strip()
