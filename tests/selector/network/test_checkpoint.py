"""Exported selectors: round trip, refusals, and what loading may import."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from selector.artifacts.writing import as_json
from selector.config import PairConfig
from selector.errors import UserError
from selector.features import SCALARS, RootFeatures
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint, best_actions
from selector.network.checkpoint_config import CheckpointConfig
from selector.network.network import Inputs, NetworkShape, Prediction, SelectorNetwork
from selector.pair_names import ModelName, PairNames
from selector.trees.expansion import ActionSpace
from tests.support.numpy_selector import NumpySelector

SPACE = ActionSpace(2, 1, 3)
PROFILE = LatencyProfile(
    contexts=(1, 512), widths=(1, 16), target_seconds=((0.05, 0.06), (0.07, 0.09)),
    draft_seconds=((0.004, 0.005), (0.005, 0.006)), overhead_seconds=(0.001, 0.001), plain_seconds=(0.05, 0.07),
)  # fmt: skip


def make_checkpoint(inputs: str = "all") -> SelectorCheckpoint:
    torch.manual_seed(0)
    shape = NetworkShape(6, 4, len(SCALARS), (2, 1, 3), components=8, hidden_sizes=(16, 8), inputs=inputs)
    network = SelectorNetwork(shape)
    network.encoder.fit(Inputs(*(torch.randn(60, size) for size in (6, 4, 4)), torch.rand(60, len(SCALARS) + 2)))
    network.mean_efficiency.copy_(1 + (network.longest - 1) / 4)
    network.set_linear(0.15 * torch.randn(len(SPACE), shape.width), network.mean_efficiency)
    network.prices.copy_(network.mean_efficiency + 0.1 * torch.rand(len(SPACE)))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    config = CheckpointConfig(
        verifier="naive", shape=shape, scalars=list(SCALARS), default_head="regressor", target_fingerprint="t1",
        draft_fingerprint="d1", draft_warp="same", sampling_range={"temperature": [0.2, 1.2], "top_p": [0.9, 1.0]},
        profile=as_json(PROFILE), best_static=(2, 0, 2), data_hash="0" * 64,
    )  # fmt: skip
    return SelectorCheckpoint(network, config)


def make_features(seed: int) -> RootFeatures:
    generator = torch.Generator().manual_seed(seed)
    scalars = torch.rand(len(SCALARS), generator=generator)
    scalars[SCALARS.index("context_length")] = 100 + seed
    return RootFeatures(*(torch.randn(size, generator=generator) for size in (6, 4, 4)), scalars)


def choose(checkpoint: SelectorCheckpoint, features: RootFeatures, times: torch.Tensor, head: str | None) -> int:
    return checkpoint.choose(features, checkpoint.prices(times).numpy(), head)


def test_round_trip_makes_the_same_choices(tmp_path):
    checkpoint = make_checkpoint()
    checkpoint.save(tmp_path / "out", "# Card\n")
    loaded = SelectorCheckpoint.load(tmp_path / "out")
    assert loaded.config == checkpoint.config
    assert loaded.best_static == (2, 0, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md", "config.json", "model.safetensors",
    ]  # fmt: skip
    for seed in range(20):
        times = PROFILE.action_times(torch.tensor([100.0 + seed]), SPACE)[0]
        for head in ("policy", "regressor", None):
            features = make_features(seed)
            assert choose(loaded, features, times, head) == choose(checkpoint, features, times, head)


def test_heads_choose_as_documented():
    prediction = Prediction(
        torch.tensor([[0.0, 2.0, 1.0]]), torch.tensor([[1.0, 1.9, 2.2]]), torch.tensor([1.0, 1.0, 1.5])
    )
    times = torch.tensor([[1.0, 1.5, 2.0]])
    assert best_actions(prediction, times, "policy").tolist() == [1]
    assert best_actions(prediction, times, "regressor").tolist() == [1], "1.9 - 1.5 is the largest at a rate of 1"
    assert best_actions(prediction, times / 3, "regressor").tolist() == [1], "a faster machine has a higher rate"
    slow = prediction._replace(mean_efficiency=torch.tensor([0.5, 0.6, 0.7]))
    assert best_actions(slow, times, "regressor").tolist() == [2], "time is cheap where the rate is 0.5"


def test_the_machine_at_hand_decides_through_the_regressor():
    checkpoint, features = make_checkpoint(), make_features(0)
    times = torch.ones(len(SPACE))
    times[3] = 1e-6
    assert choose(checkpoint, features, times, "regressor") == 3


def test_one_root_is_chosen_as_in_a_batch():
    checkpoint = make_checkpoint()
    batch = [make_features(seed) for seed in range(10)]
    names = ("target_hidden", "draft_hidden_prev", "draft_hidden_root")
    hidden = {name: torch.stack([getattr(features, name).half().float() for features in batch]) for name in names}
    context = torch.tensor([100.0 + seed for seed in range(10)])
    times = PROFILE.action_times(context, SPACE)
    prediction = checkpoint.predict(hidden, torch.stack([features.scalars for features in batch]), context)
    for head in ("policy", "regressor"):
        singles = [choose(checkpoint, features, times[row], head) for row, features in enumerate(batch)]
        assert best_actions(prediction, times, head).tolist() == singles


@pytest.mark.parametrize("inputs", ["all", "root"])
def test_numpy_alone_makes_the_same_choices(tmp_path, inputs):
    make_checkpoint(inputs).save(tmp_path / "out", "")
    loaded, ported = SelectorCheckpoint.load(tmp_path / "out"), NumpySelector(tmp_path / "out")
    chosen = set()
    for seed in range(60):
        features, times = make_features(seed), PROFILE.action_times(torch.tensor([100.0 + seed]), SPACE)[0]
        blocks = [features.target_hidden, features.draft_hidden_prev, features.draft_hidden_root]
        given = [block.half().double().numpy() for block in blocks], features.scalars.double().numpy()
        names = ("target_hidden", "draft_hidden_prev", "draft_hidden_root")
        stored = {name: block.half().float()[None] for name, block in zip(names, blocks, strict=True)}
        theirs = loaded.predict(stored, features.scalars[None], torch.tensor([100.0 + seed]))
        for ours, tensor in zip(ported.predict(*given), theirs, strict=False):
            assert ours == pytest.approx(tensor[0].double().numpy(), abs=1e-4)
        for head in ("policy", "regressor"):
            action = ported.choose(*given, times.numpy(), head)
            assert action == choose(loaded, features, times, head)
            chosen.add((head, action))
    assert len(chosen) >= 4, "the choices of either head differ from root to root"


def test_another_pair_is_refused():
    checkpoint = make_checkpoint()
    checkpoint.check_pair("t1", "d1")
    with pytest.raises(UserError, match="another target model"):
        checkpoint.check_pair("t2", "d1")
    with pytest.raises(UserError, match="another draft model"):
        checkpoint.check_pair("t1", "d2")


def edited(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"schema": 1}, "schema of"),
        ({"default_head": "best"}, "default_head is 'best'"),
        ({"colour": 1}, "colour of .* is unknown"),
        ({"profile": {}}, "is damaged"),
        ({"shape": {"target_hidden": 6}}, "is damaged"),
        ({"scalars": list(SCALARS[:3])}, "is damaged .scalars are"),
        ({"draft_warp": [1]}, "is damaged .draft_warp is"),
        ({"draft_warp": "foo"}, "is damaged .draft_warp is 'foo'"),
        ({"draft_warp": [-1.0, 1.0]}, "is damaged .draft_warp is .*temperature is -1"),
        ({"sampling_range": []}, "is damaged .sampling_range is"),
        ({"best_static": [9, 9, 9]}, "is damaged"),
        ({"metrics": {"learned": "yes"}}, "is damaged .metrics.learned is 'yes'"),
    ],
)
def test_broken_configurations_are_refused(tmp_path, changes, word):
    make_checkpoint().save(tmp_path / "out", "")
    edited(tmp_path / "out", **changes)
    with pytest.raises(UserError, match=word):
        SelectorCheckpoint.load(tmp_path / "out")


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": "some"},
        {"inputs": ["root"]},
        {"hidden_sizes": [-16, 8]},
        {"hidden_sizes": [16]},
        {"components": 0},
        {"dropout": "a"},
        {"action_space": [2, 1]},
    ],
)
def test_broken_shapes_are_refused(tmp_path, changes):
    folder = tmp_path / "out"
    make_checkpoint().save(folder, "")
    edited(folder, shape={**json.loads((folder / "config.json").read_text())["shape"], **changes})
    with pytest.raises(UserError, match=rf"config.json' is damaged \(shape.{next(iter(changes))}.* is"):
        SelectorCheckpoint.load(folder)


def test_broken_weights_are_refused(tmp_path):
    folder = tmp_path / "out"
    make_checkpoint().save(folder, "")
    shape = json.loads((folder / "config.json").read_text())["shape"]
    edited(folder, shape={**shape, "components": 16})
    with pytest.raises(UserError, match=r"weights of .* do not fit"):
        SelectorCheckpoint.load(folder)
    (folder / "model.safetensors").write_bytes(b"x")
    with pytest.raises(UserError, match=r"weights of .* do not fit"):
        SelectorCheckpoint.load(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"has no config\.json"):
        SelectorCheckpoint.load(tmp_path / "empty")
    with pytest.raises(UserError, match=r"none' does not exist: give one that holds config\.json"):
        SelectorCheckpoint.load(tmp_path / "none")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    """But for the deviation of a scalar that never varied in training: infinite, so that it counts for nothing."""
    folder = tmp_path / "out"
    make_checkpoint().save(folder, "")
    whole = load_file(folder / "model.safetensors")
    for name, tensor in whole.items():
        spoiled = tensor.clone()
        spoiled.view(-1)[-1] = value
        save_file(whole | {name: spoiled}, folder / "model.safetensors")
        if value == float("inf") and name.endswith(".scale"):
            SelectorCheckpoint.load(folder)
            continue
        with pytest.raises(UserError, match=rf"do not fit \({name} holds NaN or infinity"):
            SelectorCheckpoint.load(folder)


def test_an_occupied_folder_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(UserError, match="holds other files"):
        make_checkpoint().save(tmp_path / "out", "")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_what_is_no_checkpoint_folder_says_what_to_give(tmp_path):
    make_checkpoint().save(tmp_path / "out" / "nss", "")
    for place, words in {
        "out": f"give one of them, as '{tmp_path / 'out' / 'nss'}'",
        "out/nss/config.json": "is a file: give the folder",
        "nowhere": "does not exist",
        "out/nss/..": "is no checkpoint but holds some",
    }.items():
        with pytest.raises(UserError, match=re.escape(words)):
            SelectorCheckpoint.load(tmp_path / place)


def test_loading_imports_torch_and_safetensors_only(tmp_path):
    make_checkpoint().save(tmp_path / "out", "")
    code = f"""
import sys
for name in ("transformers", "pytorch_lightning", "sklearn", "pyarrow", "pandas", "datasets", "rich", "wandb"):
    sys.modules[name] = None
from selector.network.checkpoint import SelectorCheckpoint
SelectorCheckpoint.load({str(tmp_path / "out")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def make_linear_checkpoint(inputs: str = "all") -> SelectorCheckpoint:
    checkpoint = make_checkpoint(inputs)
    for parameter in (*checkpoint.network.policy.parameters(), *checkpoint.network.regressor.parameters()):
        torch.nn.init.zeros_(parameter)
    return checkpoint


@pytest.mark.parametrize("inputs", ["all", "root"])
@pytest.mark.parametrize("context", [0, 1, 100, 512, 5000])
def test_one_root_of_a_linear_selector_is_predicted_as_in_a_batch(context, inputs):
    checkpoint = make_linear_checkpoint(inputs)
    assert checkpoint._single is not None
    for seed in range(20):
        features = make_features(seed)
        features.scalars[SCALARS.index("context_length")] = context
        names = ("target_hidden", "draft_hidden_prev", "draft_hidden_root")
        hidden = [getattr(features, name).half().float() for name in names]
        batch = {name: block[None] for name, block in zip(names, hidden, strict=True)}
        expected = checkpoint.predict(batch, features.scalars[None], torch.tensor([context]))
        read = [batch[name][0] for name in checkpoint._single.hidden]
        given = torch.cat(read).numpy(), features.scalars.numpy()
        got = checkpoint._single.policy_logits(*given), checkpoint._single.efficiency(*given)
        for ours, theirs in zip(got, expected, strict=False):
            torch.testing.assert_close(torch.from_numpy(ours)[None], theirs, rtol=1e-4, atol=1e-4)
        times = torch.rand(len(SPACE), generator=torch.Generator().manual_seed(seed)) + 0.05
        for head in ("policy", "regressor"):
            assert choose(checkpoint, features, times, head) == int(best_actions(expected, times[None], head))


def test_a_network_that_corrects_the_linear_model_is_asked_whole():
    assert make_checkpoint()._single is None


@pytest.mark.parametrize("make", [make_checkpoint, make_linear_checkpoint])
@pytest.mark.parametrize("inputs", ["all", "root"])
def test_who_reads_the_root_alone_chooses_without_the_token_before(make, inputs):
    checkpoint, differ = make(inputs), 0
    previous = [place for place, name in enumerate(SCALARS) if name.endswith("_prev") or name.startswith("kl_")]
    for seed in range(20):
        features = make_features(seed)
        prices = checkpoint.prices(torch.rand(len(SPACE), generator=torch.Generator().manual_seed(seed)) + 0.05).numpy()
        chosen = checkpoint.choose(features, prices)
        features.target_hidden.zero_()
        features.draft_hidden_prev.zero_()
        features.scalars[previous] = 0
        differ += chosen != checkpoint.choose(features, prices)
    assert checkpoint.reads_previous == (inputs == "all")
    assert (differ > 0) == checkpoint.reads_previous


def earlier(folder: Path, schema: int, **changes: object) -> None:
    """Make the checkpoint in `folder` one of an earlier schema."""
    make_checkpoint().save(folder, "")
    stored = json.loads((folder / "config.json").read_text())
    del stored["models"]
    (folder / "config.json").write_text(json.dumps(stored | {"schema": schema} | changes))


def test_checkpoints_without_names_of_models_load(tmp_path):
    earlier(tmp_path / "out", schema=2)
    loaded = SelectorCheckpoint.load(tmp_path / "out")
    assert loaded.config == make_checkpoint().config
    given = PairConfig()
    assert loaded.config.models.given_to(given) is given


def test_copies_are_part_of_a_checkpoint(tmp_path):
    shape = NetworkShape(6, 4, len(SCALARS), (2, 1, 3, (4, 8), ((2, 0, 2),), ()))
    config = replace(make_checkpoint().config, shape=shape)
    SelectorCheckpoint(SelectorNetwork(shape), config).save(tmp_path / "out", "")
    loaded = SelectorCheckpoint.load(tmp_path / "out")
    assert loaded.config == config
    assert [str(action) for action in loaded.space.copies][1::2] == ["copy 4 | (2, 0, 2)", "copy 8 | (2, 0, 2)"]


def test_checkpoints_that_name_their_models_alone_load(tmp_path):
    names = {"target": "someone/target", "draft": "/models/draft", "revision": "v1", "draft_revision": ""}
    earlier(tmp_path / "out", schema=3, models=names | {"quantization": "nf4", "dtype": "bfloat16"})
    assert SelectorCheckpoint.load(tmp_path / "out").config.models == PairNames(
        ModelName("someone/target", "v1"), ModelName("/models/draft"), "nf4", "bfloat16"
    )
