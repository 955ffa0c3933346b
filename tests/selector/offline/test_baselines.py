"""Static baselines and the oracle on worlds whose answer is known."""

import numpy as np
import pytest

from selector.evaluation.references import reference_outcomes
from selector.latency import LatencyProfile
from selector.offline import baselines as opponents
from selector.offline.labelled_roots import build_roots
from selector.trees.expansion import Expansion
from tests.support.evaluation_worlds import SPACE, make_dataset


def test_best_static_is_found(profile: LatencyProfile) -> None:
    dataset = make_dataset()
    better = SPACE.index(Expansion(2, 1, 2))
    dataset.efficiency["specinfer"][:, :, better] = 3.9
    roots = build_roots(dataset, "specinfer", profile)
    half = np.arange(len(roots)) < len(roots) // 2
    outcome = opponents.static_opponents(roots.subset(half), roots.subset(~half))["best_static"]
    assert (outcome.actions == better).all()
    seconds = 0.01 + 3 * 0.002  # one target pass; the root's, the trunk's and the first level's draft passes
    assert outcome.throughput == pytest.approx(3.9 / seconds, rel=1e-5)


def test_static_choices_never_see_the_test_roots(profile: LatencyProfile) -> None:
    roots = build_roots(make_dataset(), "specinfer", profile)
    train = np.arange(len(roots)) % 2 == 0
    before = opponents.static_opponents(roots.subset(train), roots.subset(~train))
    roots.halves[~train] = 1 + np.random.default_rng(0).random(roots.halves[~train].shape)
    changed = build_roots(make_dataset(), "specinfer", profile)
    changed.halves[:] = roots.halves
    after = opponents.static_opponents(changed.subset(train), changed.subset(~train))
    for name in before:
        assert (before[name].actions == after[name].actions).all()


def test_restricted_statics_stay_in_their_class(profile: LatencyProfile) -> None:
    roots = build_roots(make_dataset(noise=0.3), "specinfer", profile)
    outcomes = opponents.static_opponents(roots, roots)
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
    actions = opponents.static_opponents(roots, roots)["best_static_per_setting"].actions[0]
    assert (actions[cold.numpy()] == short).all()
    assert (actions[~cold.numpy()] == wide).all()


def test_oracle_is_not_flattered_by_noise(flat_profile: LatencyProfile) -> None:
    dataset = make_dataset(prompts=300, constant=2.5, noise=0.3)
    roots = build_roots(dataset, "specinfer", flat_profile)
    train = np.arange(len(roots)) < len(roots) // 2
    test = roots.subset(~train)
    static = opponents.static_opponents(roots.subset(train), test)["best_static"].throughput
    assert opponents.oracle(test).throughput == pytest.approx(static, rel=0.01)
    assert opponents.oracle_in_sample(test).throughput > 1.1 * static


def test_oracle_finds_a_gap_that_is_there(profile: LatencyProfile) -> None:
    roots = build_roots(make_dataset(noise=0.05), "specinfer", profile)
    static = opponents.static_opponents(roots, roots)["best_static"].throughput
    assert opponents.oracle(roots).throughput > 1.02 * static


def test_references_learn_what_the_scalar_tells(profile: LatencyProfile) -> None:
    dataset = make_dataset(prompts=40, noise=0.1)
    train, test = dataset.subset(range(200)), dataset.subset(range(200, 320))
    train_roots, test_roots = (build_roots(data, "specinfer", profile) for data in (train, test))
    outcomes = reference_outcomes(train, test, train_roots, test_roots, seed=0)
    static = opponents.static_opponents(train_roots, test_roots)["best_static"]
    assert set(outcomes) == {"ridge", "ridge_scalars", "boosting", "boosting_scalars", "entropy_heuristic"}
    for outcome in outcomes.values():
        assert outcome.throughput > 1.01 * static.throughput


def test_not_speculating_still_pays_for_looking(profile: LatencyProfile) -> None:
    roots = build_roots(make_dataset(), "specinfer", profile)
    extra = roots.selector_times - roots.times
    assert extra[:, 0] == pytest.approx(1e-4 + 0.002)
    assert extra[:, 1:] == pytest.approx(1e-4)
