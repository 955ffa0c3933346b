"""Prompts, never roots, are split, and every part has every sampling setting that has enough prompts."""

from collections import defaultdict
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from selector.dataset.dataset import RootDataset
from selector.errors import UserError
from selector.training.splits import Splits, split_prompts
from tests.support.synthetic_data import CONFIG, make_dataset, write_dataset


def load(folder, **changes) -> RootDataset:
    write_dataset(folder, **changes)
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


def crossed(sizes: list[int], settings: int, each: int = 1, rng: np.random.Generator | None = None) -> RootDataset:
    """One root a prompt and setting: `sizes` prompts of each task, `each` of the settings a prompt.

    As in data generation prompt `i` of a task starts with setting `i`, in a circle; with `rng` with any.
    """
    rows = [
        (f"{task}-{place:03d}", f"task {task}", (start + offset) % settings)
        for task, size in enumerate(sizes)
        for place in range(size)
        for start in [place if rng is None else int(rng.integers(settings))]
        for offset in range(each)
    ]
    dataset = make_dataset(prompts=len(rows), roots=1)
    dataset.prompt_ids, dataset.tasks = [row[0] for row in rows], [row[1] for row in rows]
    dataset.settings = torch.tensor([(0.2 + 0.2 * row[2], 1.0) for row in rows])
    return dataset


def parts_by(dataset: RootDataset, splits: Splits, keys: list) -> dict[object, dict[str, set[str]]]:
    """Prompts by key of a root and part."""
    part_of = {prompt: part for part, prompts in asdict(splits).items() for prompt in prompts}
    found: dict[object, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for prompt, key in zip(dataset.prompt_ids, keys, strict=True):
        found[key][part_of[prompt]].add(prompt)
    return found


@pytest.mark.parametrize("seed", range(24))
def test_each_part_has_each_setting_that_has_enough_prompts(seed):
    """Any number of tasks, prompts, settings and settings a prompt, at several shares."""
    rng = np.random.default_rng(seed)
    settings = int(rng.integers(1, 9))
    shape = rng.integers(1, 40, rng.integers(1, 6)).tolist(), settings, int(rng.integers(1, min(settings, 3) + 1))
    dataset = crossed([*shape[0], 3], *shape[1:], rng=rng if seed % 2 else None)
    folds, test, validation = [
        (5, 0.2, 0.2),
        (10, 0.1, 0.1),
        (10, 0.3, 0.2),
        (5, 0.0, 0.2),
        (20, 0.15, 0.1),
        (8, 0.25, 0.25),
    ][seed % 6]
    splits = split_prompts(dataset, replace(CONFIG, test_share=test, validation_share=validation, split_seed=seed))
    everybody = [prompt for part in asdict(splits).values() for prompt in part]
    assert sorted(everybody) == sorted(set(dataset.prompt_ids)), "every prompt is in one part only"
    missing = splits.missing_settings(dataset)
    assert set(missing) == {"train", "validation"} | ({"test"} if test else set())
    values = [(round(setting[0], 6), 1.0) for setting in dataset.settings.tolist()]
    for setting, parts in parts_by(dataset, splits, values).items():
        enough = len(set().union(*parts.values())) >= 2 * folds
        for part, lacking in missing.items():
            assert (setting in lacking) == (part not in parts)
            assert not (enough and setting in lacking), (setting, part)


@pytest.mark.parametrize("seed", range(3))
def test_held_out_places_and_settings_are_not_tied(seed):
    """Five tasks of 40 prompts whose setting follows from their place: each part has its share of each combination."""
    dataset = crossed([40] * 5, 8)
    splits = split_prompts(dataset, replace(CONFIG, split_seed=seed))
    temperatures = dataset.settings[:, 0].tolist()
    for keys, least, most in (
        (temperatures, 4, 6),
        (dataset.tasks, 7, 9),
        (list(zip(dataset.tasks, temperatures, strict=True)), 1, 1),
    ):
        for parts in parts_by(dataset, splits, keys).values():
            assert all(least <= len(parts[part]) <= most for part in ("validation", "test"))


@pytest.mark.parametrize(
    ("test", "validation"),
    [
        (0.2, 0.2),
        (0.25, 0.25),
        (0.5, 0.25),
        (0.1, 0.05),
        (1 / 3, 1 / 3),
        (0.0, 0.5),
        (0.15, 0.3),
    ],
)
def test_parts_have_their_shares(test, validation):
    splits = split_prompts(crossed([60, 60, 60], 6), replace(CONFIG, test_share=test, validation_share=validation))
    for part, share in ((splits.test, test), (splits.validation, validation), (splits.train, 1 - test - validation)):
        assert len(part) == pytest.approx(180 * share, abs=3)


def test_settings_of_too_few_prompts_are_named():
    dataset = crossed([20], 1)
    dataset.settings[0, 0] = 1.4
    splits = split_prompts(dataset, CONFIG)
    holder = next(part for part, prompts in asdict(splits).items() if dataset.prompt_ids[0] in prompts)
    missing = splits.missing_settings(dataset)
    assert missing == {part: [] if part == holder else [(1.4, 1.0)] for part in ("train", "validation", "test")}


@pytest.mark.parametrize(("test", "validation"), [(0.9, 0.05), (0.5, 0.49), (0.01, 0.01)])
@pytest.mark.parametrize("prompts", [3, 10, 60])
def test_no_part_is_empty_at_strange_shares(test, validation, prompts):
    splits = split_prompts(crossed([prompts], 2), replace(CONFIG, test_share=test, validation_share=validation))
    assert all(asdict(splits).values())
