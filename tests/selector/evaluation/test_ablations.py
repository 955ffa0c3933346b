"""The study finds which inputs matter where that is known."""

from itertools import pairwise

import pytest
import torch

from selector.evaluation.ablations import SHARES, VARIANTS, StudyResult, make_folds, study, used_columns
from selector.features import SCALARS
from selector.latency import LatencyProfile
from selector.network.network import BLOCKS, INPUTS, Inputs, NetworkShape, RootEncoder
from tests.support.synthetic_data import make_dataset


@pytest.fixture(scope="module")
def findings() -> dict[str, StudyResult]:
    """The first scalar tells everything, the hidden states nothing."""
    from tests.support.profiles import make_profile

    found = study(make_dataset(prompts=30, noise=0.2), ["specinfer"], make_profile(), components=4, resamples=200)
    return {finding.variant: finding for finding in found["specinfer"]}


def test_what_matters_is_found(findings: dict[str, StudyResult]) -> None:
    assert list(findings)[: len(VARIANTS)] == list(VARIANTS)
    assert {f"without {name}" for name in BLOCKS} < set(findings)
    full, scalars, hidden = (findings[name].ratio for name in ("all inputs", "no hidden states", "hidden states only"))
    assert full.low > 1.01
    assert scalars.value == pytest.approx(full.value, abs=0.01)
    assert hidden.value < full.value - 0.01


def test_more_data_is_better_and_is_counted(findings: dict[str, StudyResult]) -> None:
    curve = [findings[share] for share in ("12.5%", "25.0%", "50.0%", "100.0%")]
    assert [finding.num_prompts for finding in curve] == [3, 6, 12, 24]
    assert curve[-1].ratio == findings["all inputs"].ratio
    assert curve[-1].ratio.value >= curve[0].ratio.value - 0.005


def test_every_root_is_scored_by_a_model_that_did_not_see_its_prompt(profile: LatencyProfile) -> None:
    """Hidden states name the prompt and labels are its alone: only a model that saw it could gain."""
    dataset = make_dataset(prompts=30, roots=8, constant=2.0)
    generator = torch.Generator().manual_seed(0)
    names = torch.randn(30, 6, generator=generator).repeat_interleave(8, 0)
    favourite = torch.randint(1, dataset.efficiency["specinfer"].shape[2], (30,), generator=generator)
    rows = torch.arange(240)
    dataset.efficiency["specinfer"][rows, :, favourite.repeat_interleave(8)] += 2.0
    dataset.hidden["target_hidden"] = names
    found = study(dataset, ["specinfer"], profile, components=6, resamples=50)["specinfer"][0]
    assert found.ratio.value < 1.02


def test_few_prompts_give_none(profile: LatencyProfile) -> None:
    assert study(make_dataset(prompts=9), ["specinfer"], profile) == {"specinfer": []}


def test_verifiers_share_folds_and_keep_their_own_labels(profile: LatencyProfile) -> None:
    """What is found of one verifier does not depend on which others are studied with it."""
    names = ["specinfer", "naive"]
    dataset = make_dataset(prompts=12, noise=0.2, verifiers=("specinfer", "naive"))
    dataset.efficiency["naive"] = 1 + (dataset.efficiency["naive"] - 1) * torch.linspace(1, 0.5, 96)[:, None, None]
    together = study(dataset, names, profile, components=4, resamples=20)
    alone = {name: study(dataset, [name], profile, components=4, resamples=20)[name] for name in names}
    assert together == alone
    assert together["specinfer"] != together["naive"]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_has_its_columns(block: str) -> None:
    """Another value of a block changes what the encoder gives in that block's columns and in no other."""
    shape, generator = NetworkShape(6, 4, len(SCALARS), (2, 2, 3), components=3), torch.Generator().manual_seed(0)
    inputs = Inputs(*(torch.rand(50, size, generator=generator) for size in (6, 4, 4, len(SCALARS) + 2)))
    encoder = RootEncoder(shape)
    encoder.fit(inputs)
    parts = {
        "uncertainty_prev": [0, 1, 3, 4, 5], "uncertainty_root": [2, 6, 7], "setting": [8, 9, 10],
        "copy": [*range(11, 18)], "latency": [18, 19],
    }  # fmt: skip
    place = min(BLOCKS.index(block), 3)
    changed = [part.clone() for part in inputs]
    changed[place][:, parts.get(block, [*range(inputs[place].shape[1])])] += 0.1
    differs = (encoder(Inputs(*changed)) != encoder(inputs)).any(0)
    assert torch.equal(differs.float(), used_columns(shape, [block]))


def test_folds_keep_prompts_apart_and_shares_grow() -> None:
    prompts = torch.arange(120).numpy() // 4 % 30
    inputs = Inputs(*(torch.rand(120, size) for size in (6, 4, 4, 9)))
    shape = NetworkShape(6, 4, 7, (2, 2, 3), components=3, hidden_sizes=(1, 1))
    shares = [make_folds(inputs, prompts, shape, share, seed=1) for share in SHARES]
    for folds in shares:
        assert torch.stack([fold.test for fold in folds]).sum(0).eq(1).all(), "every root is scored once"
        for fold in folds:
            assert not set(prompts[fold.train.numpy()]) & set(prompts[fold.test.numpy()])
            assert len(set(prompts[fold.train.numpy()])) == fold.num_prompts
    for less, more in pairwise(shares):
        assert all((a.train <= b.train).all() for a, b in zip(less, more, strict=True))


def test_what_a_network_does_not_read_is_zero() -> None:
    shape, generator = NetworkShape(6, 4, 7, (2, 2, 3), components=3, inputs="root"), torch.Generator().manual_seed(0)
    inputs = Inputs(*(torch.rand(50, size, generator=generator) for size in (6, 4, 4, 9)))
    encoder = RootEncoder(shape)
    encoder.fit(inputs)
    assert torch.equal(encoder(inputs).any(0).float(), used_columns(shape, INPUTS["root"]))
