"""Static actions and the oracle gap."""

import pytest
import torch

from selector.dataset.records import RootDataset
from selector.offline.training_baselines import actions_per_setting, best_action, oracle_gap, throughput_of
from tests.support.training_worlds import PROFILE, make_dataset

EFFICIENCY = torch.tensor([[1.0, 3.0], [1.0, 1.0], [1.0, 1.2]])
TIMES = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
ONE_TEXT = torch.tensor([0, 0, 0])


def test_throughput_is_a_ratio_of_sums_within_a_trajectory():
    choices = torch.tensor([1, 0, 0])
    assert throughput_of(choices, EFFICIENCY, TIMES, ONE_TEXT) == pytest.approx(5 / 4)
    assert throughput_of(choices, EFFICIENCY, TIMES, torch.tensor([0, 1, 1])) == pytest.approx(3 / (2 / 3 + 1 + 1))
    assert best_action(EFFICIENCY, TIMES, ONE_TEXT) == 0
    assert best_action(EFFICIENCY[:1], TIMES[:1], ONE_TEXT[:1]) == 1


def test_settings_have_their_own_actions_and_unseen_ones_the_overall_best():
    settings = torch.tensor([[0.2, 1.0], [1.0, 1.0], [0.6, 1.0]])
    train = torch.tensor([True, True, False])
    assert best_action(EFFICIENCY[:2], TIMES[:2], ONE_TEXT[:2]) == 0
    assert actions_per_setting(settings, EFFICIENCY, TIMES, torch.arange(3), train).tolist() == [1, 0, 0]


def test_gap_is_found_where_there_is_one(tmp_path):
    make_dataset(tmp_path, prompts=30, noise=0.1)
    gap = oracle_gap(RootDataset.load(tmp_path), "naive", PROFILE)
    assert 0.15 < gap.gap <= gap.optimistic < 0.5
    assert not gap.too_small
    assert "something to learn" in gap.sentence()


def test_gap_of_noise_is_none_though_the_same_samples_flatter_it(tmp_path):
    make_dataset(tmp_path, prompts=30, noise=0.6, informative=False)
    gap = oracle_gap(RootDataset.load(tmp_path), "naive", PROFILE)
    assert gap.gap < 0 < 0.05 < gap.optimistic
    assert gap.too_small
    assert "too little to learn" in gap.sentence()


def test_gap_of_equal_roots_without_noise_is_zero(tmp_path):
    make_dataset(tmp_path, prompts=10, noise=0.0, informative=False)
    gap = oracle_gap(RootDataset.load(tmp_path), "naive", PROFILE)
    assert gap.gap == pytest.approx(0, abs=1e-3)
    assert "static action is enough" in gap.sentence()
