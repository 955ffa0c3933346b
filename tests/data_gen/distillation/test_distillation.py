"""Sampling the training text, fitting the draft, and going on after an interruption."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from data_gen.distillation.batch_passes import BatchPasses
from data_gen.distillation.losses import cross_entropy, rejection_rate
from data_gen.distillation.openings import sample_openings
from data_gen.distillation.pipeline import distill, hold_out
from data_gen.distillation.sampling import Turns, draw, sample_batch
from data_gen.distillation.settings import check_target
from data_gen.distillation.shards import frequent_tokens, shard_batches
from data_gen.distillation.training import DraftTraining
from data_gen.distillation.unrolled import unrolled_logits
from selector.config import DistillConfig, GenerateConfig, PairConfig
from selector.engine.early_exit import build_early_exit, trained_parameters
from selector.errors import UserError
from tests.support.small_runs import small_config
from tests.support.tiny_models import tiny_llama

PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12], [13, 14]]
END = 63


def sampled(seed: int, top_tokens: int = 64, new_tokens: int = 12) -> dict[str, torch.Tensor]:
    batch = sample_batch(
        BatchPasses(tiny_llama(layers=3, scale=1.0)), PROMPTS, torch.tensor([True, True, False, True]),
        torch.tensor([[0.2, 1.0], [1.0, 1.0], [1.2, 1.0], [1.0, 0.9]]), new_tokens=new_tokens, top_tokens=top_tokens,
        turns=Turns((END,), (END,)), generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    return batch | {"tasks": torch.arange(len(PROMPTS))}


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    paths = []
    for seed in range(3):
        paths.append(tmp_path / f"text-{seed}.safetensors")
        save_file(sampled(seed), paths[-1])
    return paths


def training(shards: Iterable[Path]) -> DraftTraining:
    config = DistillConfig(layers=[0, 2], epochs=2, total_variation_epochs=1, batch_size=2, learning_rate=3e-3)
    tokens = torch.arange(48)
    return DraftTraining(
        build_early_exit(tiny_llama(layers=3, scale=1.0), [0, 2], tokens), tokens, list(shards), config
    )


def test_openings_are_reproducible_and_filled() -> None:
    openings = sample_openings(600, 3)
    assert openings == sample_openings(600, 3)
    assert openings != sample_openings(600, 4)
    assert len({opening.text for opening in openings}) > 300
    assert not any(slot in opening.text for opening in openings for slot in ("{name}", "{thing}", "{language}", "{k}"))


@pytest.mark.parametrize("new_tokens", [12, 80])  # 80: room is made twice, and rows have left
def test_recorded_laws_are_the_models_own(new_tokens: int) -> None:
    """Batched, left-padded sampling records what a plain pass over each row gives, hidden states included."""
    batch = sampled(0, new_tokens=new_tokens)
    model = tiny_llama(layers=3, scale=1.0)
    width = batch["prompt_mask"].shape[1]
    for row in range(len(PROMPTS)):
        count = int(batch["loss_mask"][row].sum())
        tokens = batch["tokens"][row, width - len(PROMPTS[row]) : width + count].long()
        law = model(tokens[None]).logits[0, len(PROMPTS[row]) - 1 : -1].log_softmax(-1)
        ids, logprobs = batch["top_ids"][row, :count].long(), batch["top_logprobs"][row, :count].float()
        torch.testing.assert_close(logprobs, law.gather(1, ids), atol=5e-3, rtol=2e-3)
        hidden = model.base_model(tokens[None, :-1]).last_hidden_state[0]
        states = batch["states"][row, width - len(PROMPTS[row]) : width + count - 1].float()
        torch.testing.assert_close(states, hidden, atol=0.02, rtol=0.01)


def test_batches_align_laws_with_positions(shards: list[Path]) -> None:
    """The target itself, as its own draft, has no rejections at temperature 1."""
    model = tiny_llama(layers=3, scale=1.0)
    for batch in shard_batches(shards[0], 3, None):
        (logits,) = unrolled_logits(model, batch, 1)
        columns, top = batch.top_ids[batch.loss_mask], batch.top_logprobs[batch.loss_mask]
        assert float(rejection_rate(logits, columns, top, torch.ones(len(logits)))) < 5e-3


def test_draw_follows_temperature_and_nucleus() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]]).repeat(20_000, 1)
    settings = torch.tensor([[0.5, 1.0]]).repeat(20_000, 1)
    tokens = draw(logits, settings, torch.Generator().manual_seed(0))
    shares = tokens.bincount(minlength=3) / 20_000
    torch.testing.assert_close(shares, (logits[0] / 0.5).softmax(-1), atol=0.01, rtol=0.0)
    nucleus = draw(logits, torch.tensor([[1.0, 0.7]]).repeat(20_000, 1), torch.Generator().manual_seed(0))
    assert set(nucleus.tolist()) == {0, 1}


def test_losses_on_known_laws() -> None:
    target, draft = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.2, 0.5, 0.3]])
    columns = torch.tensor([[0, 1, 2]])
    one = torch.ones(1)
    assert float(rejection_rate(draft.log(), columns, target.log(), one)) == pytest.approx(0.3)
    expected = -(target * draft.log()).sum()
    assert float(cross_entropy(draft.log(), columns, target.log(), one)) == pytest.approx(float(expected))
    assert float(rejection_rate(draft.log(), torch.tensor([[0, 1, -1]]), target.log(), one)) == pytest.approx(0.5)


def test_frequent_tokens(shards: list[Path]) -> None:
    mass = torch.zeros(64)
    for path in shards:
        shard = load_file(path)
        alive = shard["loss_mask"]
        mass.index_add_(
            0, shard["top_ids"][alive].long().flatten(), shard["top_logprobs"][alive].float().exp().flatten()
        )
    assert frequent_tokens(shards, 64, 10).tolist() == sorted(mass.topk(10).indices.tolist())


def test_training_fits_and_resumes(shards: list[Path], tmp_path: Path) -> None:
    """An interrupted run ends with the very weights of an undisturbed one, and the draft accepts more."""
    straight = training(shards)
    batch = next(shard_batches(shards[1], 4, None))
    before = _acceptance(straight, batch)
    straight.run(tmp_path / "a.pt", lambda row: None)
    assert _acceptance(straight, batch) > before + 0.05

    class Killed(Exception):
        pass

    def kill_after_four(row: dict[str, float]) -> None:
        if row["done"] >= 4 / 9:
            raise Killed

    with pytest.raises(Killed):
        training(shards).run(tmp_path / "b.pt", kill_after_four)
    resumed = training(shards)
    resumed.run(tmp_path / "b.pt", lambda row: None)
    for name, parameter in trained_parameters(straight.draft).items():
        assert torch.equal(parameter, trained_parameters(resumed.draft)[name]), name


def _acceptance(run: DraftTraining, batch: object) -> float:
    with torch.no_grad():
        (logits,) = unrolled_logits(run.draft, batch, 1)
    columns = run.columns[batch.top_ids[batch.loss_mask]]
    return 1 - float(rejection_rate(logits, columns, batch.top_logprobs[batch.loss_mask], torch.ones(len(logits))))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"layers": []}, "layers is"),
        ({"layers": [-1]}, "layers is"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"epochs": 0, "total_variation_epochs": 0}, "epochs and .* are 0"),
        ({"epochs": -1}, "epochs is -1"),
        ({"head_tokens": -1}, "head_tokens is -1"),
        ({"learning_rate": 0.0}, r"learning_rate is 0\.0"),
        ({"settings": []}, "settings is empty"),
        ({"settings": [(1.0, 1.5)]}, r"settings has \(1\.0, 1\.5\)"),
        ({"settings": [(0.0, 1.0)]}, "temperature above 0"),
    ],
)
def test_senseless_settings_are_refused(changes: dict[str, object], word: str) -> None:
    with pytest.raises(UserError, match=rf"^distill\..*{word}|^distill\.{word}"):
        DistillConfig(**changes)


@pytest.mark.parametrize("changes", [{"layers": [0, 3]}, {"head_tokens": 65}, {"top_tokens": 65}])
def test_settings_beyond_the_target_are_refused(changes: dict[str, object]) -> None:
    fitting: dict[str, object] = {"layers": [0, 2], "head_tokens": 64, "top_tokens": 64}
    check_target(DistillConfig(**fitting), 3, 64)
    with pytest.raises(UserError, match=rf"^distill\.{next(iter(changes))} is .*the target has"):
        check_target(DistillConfig(**fitting | changes), 3, 64)


def test_the_first_shards_are_held_out_and_one_is_left() -> None:
    shards = [(Path("a"), 10), (Path("b"), 10), (Path("c"), 10)]
    assert hold_out(shards, 0) == ([], [Path("a"), Path("b"), Path("c")])
    assert hold_out(shards, 5)[0] == [Path("a")]
    assert hold_out(shards, 99) == ([Path("a"), Path("b")], [Path("c")])


def test_held_out_acceptance_is_the_mean_over_tokens(shards: list[Path]) -> None:
    run = training(shards)
    batch = next(shard_batches(shards[0], 4, None))
    rows = [row for row in run.acceptance(shards[:1]) if (row["depth"], row["temperature"]) == (1, 1.0)]
    assert len(rows) == len({row["task"] for row in rows}) == len(PROMPTS)
    tokens = sum(row["tokens"] for row in rows)
    rate = sum(row["acceptance"] * row["tokens"] for row in rows) / tokens
    assert rate == pytest.approx(_acceptance(run, batch), abs=1e-5)
    assert run.acceptance([]) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pair": PairConfig(target="./nothing")}, r"^pair\.target is"),
        ({"distill": DistillConfig(start="./nothing", layers=[0])}, r"^distill\.start is 'nothing'"),
    ],
)
def test_a_refused_distillation_leaves_no_folder(tmp_path: Path, changes: dict[str, object], named: str) -> None:
    config = replace(small_config([]), generate=GenerateConfig(), **changes)
    with pytest.raises(UserError, match=named):
        distill(config, tmp_path / "draft", tmp_path / "work")
    assert not list(tmp_path.iterdir())
