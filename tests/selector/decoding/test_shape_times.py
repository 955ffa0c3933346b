"""Pass times from shapes alone: which layers are timed, the line through them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.auto import CONFIG_MAPPING

from selector.cli.main import main
from selector.config import PairConfig
from selector.decoding import shape_times
from selector.decoding.shape_times import measure_shapes
from selector.engine.shapes import random_model, read_shape
from selector.engine.timing import Timer
from selector.errors import UserError
from selector.latency import LatencyProfile
from tests.support.families import RECIPES, SMALL, Recipe, Shapes
from tests.support.profiles import make_profile

CPU = torch.device("cpu")


def stub(layers: int) -> Any:
    """What a profile asks of a model of so many layers."""
    return SimpleNamespace(model=SimpleNamespace(config=SimpleNamespace(num_hidden_layers=layers)))


def write_shapes(folder: Path, kinds: tuple[str, str], shapes: tuple[Shapes, Shapes]) -> PairConfig:
    """A config.json of each model, and nothing else."""
    for name, kind, own in zip(("target", "draft"), kinds, shapes, strict=True):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps({"model_type": kind, **own}))
    return PairConfig(str(folder / "target"), str(folder / "draft"), dtype="float32", device="cpu")


@pytest.mark.parametrize(
    ("name", "depths"),
    [("qwen2.5-7b", ((1, 3), (1, 3))), ("llama-3-70b", ((1, 3), (1, 3))), ("gemma-3-27b", ((6, 18), (6, 18)))],
)
def test_so_many_layers_of_the_true_shapes_are_timed(name: str, depths: Any, tmp_path: Path) -> None:
    """Gemma's have windows but for one in six."""
    recipe = RECIPES[name]
    config = write_shapes(tmp_path, recipe.kinds, recipe.true)
    shapes = [read_shape("target", f"{config.target}/config.json"), read_shape("draft", config.draft)]
    assert tuple(shape.depths for shape in shapes) == depths
    true = [shape.get("text_config", shape)["num_hidden_layers"] for shape in recipe.true]
    assert [shape.depth for shape in shapes] == true


def deeper(recipe: Recipe) -> tuple[Shapes, Shapes]:
    """The small shapes with twelve layers."""
    found = []
    for shape in recipe.small:
        text = shape.get("text_config", shape)
        kinds = {"layer_types": text["layer_types"] * 6} if "layer_types" in text else {}
        text = SMALL | text | {"num_hidden_layers": 12} | kinds
        found.append({**shape, "text_config": text} if "text_config" in shape else text)
    return found[0], found[1]


@pytest.mark.parametrize("name", RECIPES)
def test_a_profile_of_shapes(name: str, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    config = write_shapes(tmp_path, recipe.kinds, deeper(recipe))
    profile = measure_shapes(config, (1, 4), repeats=1, action_space=(2, 1, 1), inputs="root")
    assert profile.contexts == (64, 512)
    assert min(map(min, profile.target_seconds)) > 0 < min(map(min, profile.draft_seconds))
    assert profile.provenance.kind == "measured"
    assert profile.provenance.target.endswith("/target")
    assert "of the target's 12 layers" in profile.provenance.note
    profile.check_pair("any", "other")
    profile.save(tmp_path / "profile.json")
    assert LatencyProfile.load(tmp_path / "profile.json") == profile


def test_layers_are_added_to_the_true_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = RECIPES["qwen2.5-7b"]
    config = write_shapes(tmp_path, recipe.kinds, (recipe.true[0], recipe.small[1]))
    timed: list[Any] = []

    def base(pair: Any, *_: Any, **__: Any) -> LatencyProfile:
        timed.append([model.model.config.num_hidden_layers for model in (pair.target, pair.draft)])
        return make_profile()

    layers = {"target": ((0.001, 0.002), (0.003, 0.004)), "draft": ((0.1, 0.1), (0.1, 0.1)), "plain": ((0.01, 0.02),)}
    monkeypatch.setattr(shape_times, "measure_profile", base)
    monkeypatch.setattr(shape_times, "time_layers", lambda *_: layers)
    monkeypatch.setattr(shape_times, "_shallow_pair", lambda *_: SimpleNamespace(target=stub(1), draft=stub(1)))
    found = measure_shapes(config)
    assert timed == [[1, 1]]
    assert np.array(found.target_seconds) == pytest.approx(0.01 + 27 * np.array(layers["target"]))
    assert np.array(found.draft_seconds) == pytest.approx(0.002 + 1 * np.array(layers["draft"]))
    assert found.plain_seconds == pytest.approx([0.01 + 27 * 0.01, 0.01 + 27 * 0.02])
    assert found.overhead_seconds == make_profile().overhead_seconds


def test_the_time_of_a_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that counts layers: every pass takes a second a layer and one more, whatever the width."""
    recipe = RECIPES["qwen2.5-7b"]
    config = write_shapes(tmp_path, recipe.kinds, deeper(recipe))
    shapes = [read_shape(name, getattr(config, name)) for name in ("target", "draft")]

    def passes(models: Any, timer: Timer, prompt: torch.Tensor, widths: Any, repeats: int) -> None:
        for name, model in models.items():
            for width in widths:
                timer.add((name, len(prompt), width), 1.0 + model.model.config.num_hidden_layers)

    def plain(name: Any, model: Any, timer: Timer, prompt: torch.Tensor) -> None:
        timer.add((name, len(prompt)), 1.0)

    monkeypatch.setattr(shape_times, "measure_passes", passes)
    monkeypatch.setattr(
        shape_times, "measure_plain", lambda name, model, timer, prompt: timer.add((name, len(prompt)), 1)
    )
    found = shape_times.time_layers(config, *shapes, (8, 16), (1, 4), 1)
    assert found == {"target": ((1, 1), (1, 1)), "draft": ((1, 1), (1, 1)), "plain": ((0, 0),)}


def test_only_what_is_timed_is_allocated() -> None:
    """One layer of a deep model with a large vocabulary: the layer and the head, no table of embeddings."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "vocab_size": 50_000}
    model = random_model(CONFIG_MAPPING["llama"](**sizes, num_hidden_layers=500), 1, 50_000, torch.float32, CPU, "auto")
    assert sum(weight.numel() for weight in model.parameters()) < 50_000 * 8 + 5_000
    assert model.get_input_embeddings()(torch.tensor([49_999])).shape == (1, 8)


def test_models_without_a_shape_of_their_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no shape of its own: give a model with --pair\.draft"):
        read_shape("draft", PairConfig.draft)
    with pytest.raises(UserError, match="no such folder"):
        read_shape("target", "./absent")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        read_shape("target", str(tmp_path))


def test_layers_of_different_sizes_are_refused(tmp_path: Path) -> None:
    sizes = SMALL | RECIPES["qwen2.5-7b"].small[1] | {"num_hidden_layers": 8, "mlp_only_layers": [3], "num_experts": 2}
    config = write_shapes(tmp_path, ("qwen3_moe", "qwen2"), (sizes, sizes))
    with pytest.raises(UserError, match=r"target is .*layers differ"):
        read_shape("target", config.target)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = RECIPES["qwen2.5-7b"]
    config = write_shapes(tmp_path, recipe.kinds, recipe.small)
    given = ["--shapes-of", f"{config.target}/config.json", "--pair.draft", config.draft, "--pair.device", "cpu"]
    given += ["--pair.dtype", "float32", "--action_space.num_branches", "2", "--out", str(tmp_path / "profile.json")]
    assert main(["profile", *given]) == 0
    assert "Random models of these shapes" in " ".join(capsys.readouterr().out.split())
    assert "/target" in LatencyProfile.load(tmp_path / "profile.json").provenance.target
