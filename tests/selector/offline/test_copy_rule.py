"""The best rule without a network, and which texts loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from selector.evaluation import machine_map
from selector.features import SCALARS
from selector.offline import baselines
from selector.offline.labelled_roots import LabelledRoots, looping
from selector.statistics import resample_counts
from selector.trees.expansion import ActionSpace, CopyExpansion, Expansion
from tests.support.profiles import make_profile
from tests.support.synthetic_data import make_dataset

SPACE = ActionSpace(1, 2, 0, (4,))
TREE, COPY = SPACE.index(Expansion(1, 0, 1)), SPACE.index(CopyExpansion(4))


def roots(pays_from: int) -> LabelledRoots:
    """Roots with matches of 0 to 7 tokens; a copy is worth its time from `pays_from` tokens on."""
    match = np.tile(np.arange(8.0), 4)
    efficiency = np.ones((len(match), len(SPACE)))
    efficiency[:, TREE] = 1.6
    efficiency[:, COPY] = np.where(match >= pays_from, 4.0, 1.1)
    efficiency[match == 0, COPY] = 1.0
    times = np.ones((len(match), len(SPACE)))
    times[:, COPY] = 1.5
    times[match == 0, COPY] = 1.0
    numbers = np.arange(len(match))
    return LabelledRoots(
        space=SPACE, match=match, halves=np.stack([efficiency, efficiency], 1), times=times, selector_times=times,
        plain=np.ones(len(match)), prompts=numbers, tasks=0 * numbers, settings=0 * numbers, trajectories=numbers // 8,
        prompt_names=tuple(map(str, numbers)), task_names=("t",), setting_values=((1.0, 1.0),),
    )  # fmt: skip


@pytest.mark.parametrize("pays_from", [1, 3, 6])
def test_the_best_rule_is_found(pays_from: int) -> None:
    found = roots(pays_from)
    rule = baselines.best_copy_rule(found)
    assert rule == (pays_from, COPY, TREE)
    assert np.array_equal(rule.actions(found), np.where(found.match >= pays_from, COPY, TREE))


def test_static_trees_are_drafted_ones_and_the_rule_is_an_opponent() -> None:
    found = roots(3)
    policies = baselines.static_policies(found, found)
    assert baselines.best_action(found) == TREE
    assert policies["best_copy_rule"].throughput > policies["best_static"].throughput
    without = replace(found, match=0 * found.match)
    assert "best_copy_rule" not in baselines.static_policies(without, without)


def test_texts_loop_by_long_matches_in_the_answer() -> None:
    dataset = make_dataset(prompts=3, roots=10)
    assert not looping(dataset).any(), "a set without the features of copies"
    match, in_prompt = SCALARS.index("copy_match_length"), SCALARS.index("copy_in_prompt")
    manifest = replace(dataset.manifest, scalars=list(SCALARS))
    scalars = torch.zeros(len(dataset), len(SCALARS))
    texts = np.unique(dataset.prompt_ids, return_inverse=True)[1]
    scalars[texts == 1, match] = scalars[texts == 2, match] = 12.0
    scalars[texts == 2, in_prompt] = 1.0
    loops = looping(replace(dataset, manifest=manifest, scalars=scalars))
    assert loops.tolist() == (texts == 1).tolist()


@pytest.mark.parametrize("pays_from", [3, 9])
def test_the_map_of_machines_has_the_rule_where_something_can_be_copied(
    pays_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = roots(pays_from)
    found = found if pays_from < 9 else replace(found, match=0 * found.match)
    monkeypatch.setattr(machine_map, "build_roots", lambda *_: found)
    dataset, counts = make_dataset(prompts=4), resample_counts(len(found.prompt_names), 20, 0)
    row = machine_map.machine_row("here", make_profile(), "specinfer", [], dataset, dataset, counts, 0.95)
    if pays_from == 9:
        assert row.rule_over_static is None
        return
    policies = baselines.static_policies(found, found)
    ratio = policies["best_copy_rule"].throughput / policies["best_static"].throughput
    assert row.rule_over_static is not None
    assert row.rule_over_static.value == pytest.approx(ratio)
