"""Prompts, never roots, are split."""

from dataclasses import replace

import pytest

from selector.dataset.records import RootDataset
from selector.errors import UserError
from selector.training.splits import split_prompts
from tests.support.training_worlds import CONFIG, make_dataset


def load(folder, **changes) -> RootDataset:
    make_dataset(folder, **changes)
    return RootDataset.load(folder)


def test_parts_are_disjoint_and_hold_every_root_once(tmp_path):
    dataset = load(tmp_path, prompts=40, roots=3)
    splits = split_prompts(dataset, CONFIG)
    rows = [splits.rows(dataset, part) for part in ("train", "validation", "test")]
    assert sorted(row for part in rows for row in part) == list(range(len(dataset)))
    prompts = [{dataset.prompt_ids[row] for row in part} for part in rows]
    assert len(set().union(*prompts)) == sum(map(len, prompts)), "a prompt is in one part only"
    assert [len(part) for part in prompts] == [24, 8, 8]


def test_every_task_has_its_share(tmp_path):
    dataset = load(tmp_path, prompts=40, roots=1)
    splits = split_prompts(dataset, CONFIG)
    task = dict(zip(dataset.prompt_ids, dataset.tasks, strict=True))
    for part in (splits.validation, splits.test):
        assert sorted(task[prompt] for prompt in part) == ["a"] * 4 + ["b"] * 4


def test_the_seed_decides(tmp_path):
    dataset = load(tmp_path, prompts=40, roots=1)
    assert split_prompts(dataset, CONFIG) == split_prompts(dataset, CONFIG)
    assert split_prompts(dataset, CONFIG) != split_prompts(dataset, replace(CONFIG, split_seed=1))


def test_few_prompts_are_shuffled_together(tmp_path):
    splits = split_prompts(load(tmp_path, prompts=4, roots=1), CONFIG)
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [2, 1, 1]


def test_test_prompts_may_be_left_out(tmp_path):
    splits = split_prompts(load(tmp_path, prompts=20, roots=1), replace(CONFIG, test_share=0.0))
    assert splits.test == []
    assert len(splits.validation) == 4


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"validation_share": 0.0}, "validation_share is 0"),
        ({"test_share": 1.0}, "test_share is 1"),
        ({"test_share": 0.8}, "test_share is 0.8"),
    ],
)
def test_bad_shares_are_refused(tmp_path, changes, word):
    dataset = load(tmp_path, prompts=10, roots=1)
    with pytest.raises(UserError, match=word):
        split_prompts(dataset, replace(CONFIG, **changes))


def test_too_few_prompts_are_refused(tmp_path):
    with pytest.raises(UserError, match="has 2 prompts"):
        split_prompts(load(tmp_path, prompts=2, roots=4), CONFIG)
