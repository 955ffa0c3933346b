"""Pass times from shapes alone: which layers are timed, the line through them, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.auto import CONFIG_MAPPING

from selector.cli.main import main
from selector.config import PairConfig
from selector.decoding.shape_times import extrapolated, measure_shapes
from selector.engine.shapes import Shape, random_model, read_shape, with_depth
from selector.errors import UserError
from selector.latency import LatencyProfile
from tests.support.families import RECIPES, SMALL, Recipe, Shapes
from tests.support.profiles import make_profile

CPU = torch.device("cpu")


def write_shapes(folder: Path, kinds: tuple[str, str], shapes: tuple[Shapes, Shapes]) -> PairConfig:
    """A config.json of each model, and nothing else."""
    for name, kind, own in zip(("target", "draft"), kinds, shapes, strict=True):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps({"model_type": kind, **own}))
    return PairConfig(str(folder / "target"), str(folder / "draft"), dtype="float32", device="cpu")


@pytest.mark.parametrize(
    ("name", "depths"),
    [("qwen2.5-7b", ((1, 3), (1, 10))), ("llama-3-70b", ((1, 3), (1, 3))), ("gemma-3-27b", ((6, 18), (18, 18)))],
)
def test_so_many_layers_of_the_true_shapes_are_timed(name: str, depths: Any, tmp_path: Path) -> None:
    """Two or more beside the first, as heavy as the head; Gemma's in periods of six, its draft whole."""
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
    profile = measure_shapes(config, (2, 1, 1), "root", widths=(1, 4), repeats=1)
    assert profile.contexts == (64, 512)
    assert min(map(min, profile.target_seconds)) > 0 < min(map(min, profile.draft_seconds))
    assert profile.provenance.kind == "measured"
    assert profile.provenance.target.endswith("/target")
    assert "layers of the target's 12" in profile.provenance.note
    assert "extrapolated" in profile.provenance.note
    profile.check_pair("any", "other")
    profile.save(tmp_path / "profile.json")
    assert LatencyProfile.load(tmp_path / "profile.json") == profile


def test_times_follow_the_line_to_the_true_depth() -> None:
    few = replace(make_profile(), overhead_seconds=(0.001, 0.002))
    more = replace(
        few, target_seconds=((0.016, 0.016), (0.016, 0.009)), draft_seconds=((0.005, 0.005), (0.005, 0.005)),
        overhead_seconds=(0.002, 0.002), plain_seconds=(0.016, 0.016), selector_seconds=2e-4,
    )  # fmt: skip
    config = CONFIG_MAPPING["llama"]()
    shapes = []
    for depth, depths in ((28, (1, 3)), (25, (1, 9))):
        own = with_depth(config, depth)
        shapes.append(Shape(own, depths))
    found = extrapolated(few, more, *shapes)
    assert found.target_seconds[0] == pytest.approx([0.01 + 13.5 * 0.006] * 2)
    assert found.target_seconds[1] == pytest.approx([0.01 + 13.5 * 0.006, 0.01]), "never less than with few layers"
    assert found.draft_seconds[0] == pytest.approx([0.002 + 3 * 0.003] * 2)
    assert found.overhead_seconds == pytest.approx([0.001 + 5.1 * 0.001, 0.002])
    assert found.plain_seconds == pytest.approx([0.01 + 13.5 * 0.006] * 2)
    assert found.selector_seconds == 1e-4


def test_only_what_is_timed_is_allocated() -> None:
    """One layer of a deep model with a large vocabulary: the layer and the head, no table of embeddings."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "vocab_size": 50_000}
    model = random_model(CONFIG_MAPPING["llama"](**sizes, num_hidden_layers=500), 1, torch.float32, CPU, "auto")
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
    with pytest.raises(UserError, match=r"target is .*layers differ in size"):
        read_shape("target", config.target)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = RECIPES["qwen2.5-7b"]
    config = write_shapes(tmp_path, recipe.kinds, recipe.small)
    given = ["--shapes-of", f"{config.target}/config.json", "--pair.draft", config.draft, "--pair.device", "cpu"]
    given += ["--pair.dtype", "float32", "--action_space.num_branches", "2", "--out", str(tmp_path / "profile.json")]
    assert main(["profile", *given]) == 0
    assert "extrapolated" in " ".join(capsys.readouterr().out.split())
    assert "/target" in LatencyProfile.load(tmp_path / "profile.json").provenance.target
