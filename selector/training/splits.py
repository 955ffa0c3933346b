"""Training, validation and test roots, split by prompt: roots of one prompt are never apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from sklearn.model_selection import GroupShuffleSplit

from selector.config import TrainConfig
from selector.dataset.records import RootDataset
from selector.errors import UserError

FEWEST_PROMPTS = 5


@dataclass(frozen=True)
class Splits:
    """Prompt ids of the three parts, sorted."""

    train: list[str]
    validation: list[str]
    test: list[str]

    def rows(self, dataset: RootDataset, part: str) -> list[int]:
        """Rows of `dataset` that belong to `part`, ascending; prompts of other data sets are in none."""
        prompts = set(asdict(self)[part])
        return [row for row, prompt in enumerate(dataset.prompt_ids) if prompt in prompts]


def split_prompts(dataset: RootDataset, config: TrainConfig) -> Splits:
    """Shuffle the prompts of each task and cut off the shares for validation and test.

    Where a task has fewer than five prompts, all tasks are shuffled together.
    """
    for name in ("validation_share", "test_share"):
        share = getattr(config, name)
        if not 0 <= share < 1 or (name == "validation_share" and share == 0):
            raise UserError(f"{name} is {share}: give a share of the prompts between 0 and 1.")
    if config.validation_share + config.test_share >= 1:
        raise UserError(f"test_share is {config.test_share}: with validation_share it must leave prompts to train on.")
    prompts = np.array(dataset.prompt_ids)
    groups = [np.unique(prompts[np.array(dataset.tasks) == task]) for task in sorted(set(dataset.tasks))]
    if min(map(len, groups)) < FEWEST_PROMPTS:
        groups = [np.unique(prompts)]
    if len(groups[0]) < 3:
        raise UserError(f"data set has {len(groups[0])} prompts: give at least 3, to train, validate and test on.")
    test: set[str] = set()
    validation: set[str] = set()
    for group in groups:
        rest, held_out = _cut(group, config.test_share, config.split_seed)
        test |= held_out
        share = config.validation_share / (1 - config.test_share)
        validation |= _cut(np.array(sorted(rest)), share, config.split_seed + 1)[1]
    # a prompt id that occurs under two tasks must not end up on two sides
    validation -= test
    return Splits(sorted(set(prompts.tolist()) - test - validation), sorted(validation), sorted(test))


def _cut(prompts: np.ndarray, share: float, seed: int) -> tuple[set[str], set[str]]:
    """The prompts, and a share of them (at least one where the share is positive)."""
    if share == 0:
        return set(prompts.tolist()), set()
    size = min(max(1, round(share * len(prompts))), len(prompts) - 1)
    splitter = GroupShuffleSplit(1, test_size=size, random_state=seed)
    kept, cut = next(splitter.split(prompts, groups=prompts))
    return set(prompts[kept].tolist()), set(prompts[cut].tolist())
