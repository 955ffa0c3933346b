"""The study finds which inputs matter where that is known."""

import pytest
import torch
from evaluation_worlds import make_dataset

from selector.evaluation.study import VARIANTS, Finding, study
from selector.latency import LatencyProfile
from selector.network import BLOCKS


@pytest.fixture(scope="module")
def findings() -> dict[str, Finding]:
    """The first scalar tells everything, the hidden states nothing."""
    from evaluation_worlds import make_profile

    found = study(make_dataset(prompts=30, noise=0.2), "specinfer", make_profile(), components=4, resamples=200)
    return {finding.variant: finding for finding in found}


def test_what_matters_is_found(findings: dict[str, Finding]) -> None:
    assert list(findings)[: len(VARIANTS)] == list(VARIANTS)
    assert {f"without {name}" for name in BLOCKS} < set(findings)
    full, scalars, hidden = (findings[name].ratio for name in ("all inputs", "no hidden states", "hidden states only"))
    assert full.low > 1.01
    assert scalars.value == pytest.approx(full.value, abs=0.01)
    assert hidden.value < full.value - 0.01


def test_more_data_is_better_and_is_counted(findings: dict[str, Finding]) -> None:
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
    found = study(dataset, "specinfer", profile, components=6, resamples=50)[0]
    assert found.ratio.value < 1.02


def test_few_prompts_give_none(profile: LatencyProfile) -> None:
    assert study(make_dataset(prompts=9), "specinfer", profile) == []
