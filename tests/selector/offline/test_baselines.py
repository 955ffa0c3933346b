"""Static baselines and the oracle on worlds whose answer is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from selector.dataset.dataset import RootDataset
from selector.evaluation.references import reference_outcomes
from selector.latency import LatencyProfile
from selector.offline import baselines
from selector.offline.labelled_roots import LabelledRoots, build_roots
from selector.trees.expansion import ActionSpace, Expansion
from tests.support.profiles import COSTLY_DRAFT
from tests.support.synthetic_data import SPACE, make_dataset, write_dataset

EFFICIENCY, TIMES = np.array([[1.0, 3.0], [1.0, 1.0], [1.0, 1.2]]), np.array([[1.0, 2.0]] * 3)


def roots_by_hand(trajectories: list[int], settings: list[tuple[float, float]] | None = None) -> LabelledRoots:
    """Three roots with two actions."""
    values = settings or [(1.0, 1.0)] * 3
    names = tuple(sorted(set(values)))
    return LabelledRoots(
        match=np.zeros(3),
        space=ActionSpace(1, 1, 0), halves=np.stack([EFFICIENCY, EFFICIENCY], 1), times=TIMES, selector_times=TIMES,
        plain=np.ones(3), prompts=np.arange(3), tasks=np.zeros(3, np.int64),
        settings=np.array([names.index(value) for value in values]), trajectories=np.array(trajectories),
        prompt_names=("a", "b", "c"), task_names=("t",), setting_values=names,
    )  # fmt: skip


def test_throughput_is_a_ratio_of_sums_within_a_trajectory() -> None:
    together, choices = roots_by_hand([0, 0, 0]), np.array([1, 0, 0])
    assert baselines.score_policy(together, choices, TIMES).throughput == pytest.approx(5 / 4)
    apart = roots_by_hand([0, 1, 1])
    assert baselines.score_policy(apart, choices, TIMES).throughput == pytest.approx(3 / (2 / 3 + 1 + 1))
    assert baselines.best_action(together) == 0
    assert baselines.best_action(together.subset(np.arange(1))) == 1


def test_settings_have_their_own_actions_and_unseen_ones_the_overall_best() -> None:
    roots = roots_by_hand([0, 1, 2], [(0.2, 1.0), (1.0, 1.0), (0.6, 1.0)])
    train = roots.subset(np.array([True, True, False]))
    assert baselines.best_action(train) == 0
    assert baselines.best_per_setting(train, roots).tolist() == [1, 0, 0]


def test_best_static_is_found(profile: LatencyProfile) -> None:
    dataset = make_dataset()
    better = SPACE.index(Expansion(2, 1, 2))
    dataset.efficiency["specinfer"][:, :, better] = 3.9
    roots = build_roots(dataset, "specinfer", profile)
    half = np.arange(len(roots)) < len(roots) // 2
    outcome = baselines.static_policies(roots.subset(half), roots.subset(~half))["best_static"]
    assert (outcome.actions == better).all()
    seconds = 0.01 + 3 * 0.002  # one target pass; the root's, the trunk's and the first level's draft passes
    assert outcome.throughput == pytest.approx(3.9 / seconds, rel=1e-5)


def test_static_choices_never_see_the_test_roots(profile: LatencyProfile) -> None:
    roots = build_roots(make_dataset(), "specinfer", profile)
    train = np.arange(len(roots)) % 2 == 0
    before = baselines.static_policies(roots.subset(train), roots.subset(~train))
    roots.halves[~train] = 1 + np.random.default_rng(0).random(roots.halves[~train].shape)
    changed = build_roots(make_dataset(), "specinfer", profile)
    changed.halves[:] = roots.halves
    after = baselines.static_policies(changed.subset(train), changed.subset(~train))
    for name in before:
        assert (before[name].actions == after[name].actions).all()


def test_restricted_statics_stay_in_their_class(profile: LatencyProfile) -> None:
    roots = build_roots(make_dataset(noise=0.3), "specinfer", profile)
    outcomes = baselines.static_policies(roots, roots)
    chain = SPACE.expansions[outcomes["best_chain"].actions[0, 0]]
    branching = SPACE.expansions[outcomes["best_root_branching"].actions[0, 0]]
    assert chain.num_branches == 1
    assert branching.trunk_length == 0
    assert branching.branch_length <= 3
    assert outcomes["best_static"].throughput >= max(
        outcomes[name].throughput for name in ("best_chain", "best_root_branching")
    )


def test_per_setting_baseline_follows_the_setting(profile: LatencyProfile) -> None:
    dataset = make_dataset(constant=2.0)
    short, wide = SPACE.index(Expansion(1, 0, 1)), SPACE.index(Expansion(2, 0, 3))
    cold = dataset.settings[:, 0] < 0.5
    dataset.efficiency["specinfer"][cold, :, short] = 9.0
    dataset.efficiency["specinfer"][~cold, :, wide] = 9.0
    roots = build_roots(dataset, "specinfer", profile)
    actions = baselines.static_policies(roots, roots)["best_static_per_setting"].actions[0]
    assert (actions[cold.numpy()] == short).all()
    assert (actions[~cold.numpy()] == wide).all()


def test_oracle_is_not_flattered_by_noise(flat_profile: LatencyProfile) -> None:
    dataset = make_dataset(prompts=300, constant=2.5, noise=0.3)
    roots = build_roots(dataset, "specinfer", flat_profile)
    train = np.arange(len(roots)) < len(roots) // 2
    test = roots.subset(~train)
    static = baselines.static_policies(roots.subset(train), test)["best_static"].throughput
    assert baselines.oracle(test).throughput == pytest.approx(static, rel=0.01)
    assert baselines.oracle_in_sample(test).throughput > 1.1 * static


def test_oracle_finds_a_gap_that_is_there(profile: LatencyProfile) -> None:
    roots = build_roots(make_dataset(noise=0.05), "specinfer", profile)
    static = baselines.static_policies(roots, roots)["best_static"].throughput
    assert baselines.oracle(roots).throughput > 1.02 * static


def test_references_learn_what_the_scalar_tells(profile: LatencyProfile) -> None:
    dataset = make_dataset(prompts=40, noise=0.1)
    train, test = dataset.subset(range(200)), dataset.subset(range(200, 320))
    train_roots, test_roots = (build_roots(data, "specinfer", profile) for data in (train, test))
    outcomes = reference_outcomes(train, test, train_roots, test_roots, seed=0)
    static = baselines.static_policies(train_roots, test_roots)["best_static"]
    assert set(outcomes) == {"ridge", "ridge_scalars", "boosting", "boosting_scalars", "entropy_heuristic"}
    for outcome in outcomes.values():
        assert outcome.throughput > 1.01 * static.throughput


def test_not_speculating_still_pays_for_looking(profile: LatencyProfile) -> None:
    roots = build_roots(make_dataset(), "specinfer", profile)
    extra = roots.selector_times - roots.times
    assert extra[:, 0] == pytest.approx(1e-4 + 0.002)
    assert extra[:, 1:] == pytest.approx(1e-4)


def gap_of(folder: Path, **world: Any) -> baselines.OracleGap:
    write_dataset(folder, **world)
    return baselines.oracle_gap(build_roots(RootDataset.load(folder), "naive", COSTLY_DRAFT))


def test_gap_is_found_where_there_is_one(tmp_path: Path) -> None:
    gap = gap_of(tmp_path, prompts=30, noise=0.1)
    assert gap.plain == pytest.approx(50)
    assert gap.undrafted == pytest.approx(50)
    assert gap.throughput > 50
    assert 0.15 < gap.gap <= gap.optimistic < 0.5
    assert not gap.too_small
    assert "something to learn" in gap.sentence()


def test_gap_of_noise_is_none_though_the_same_samples_flatter_it(tmp_path: Path) -> None:
    gap = gap_of(tmp_path, prompts=30, noise=0.6, informative=False)
    assert gap.gap < 0 < 0.05 < gap.optimistic
    assert gap.too_small
    assert "too little to learn" in gap.sentence()


def test_gap_of_equal_roots_without_noise_is_zero(tmp_path: Path) -> None:
    gap = gap_of(tmp_path, prompts=10, noise=0.0, informative=False)
    assert gap.gap == pytest.approx(0, abs=1e-3)
    assert "static action is enough" in gap.sentence()
