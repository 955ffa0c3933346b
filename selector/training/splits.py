"""Training, validation and test prompts, stratified by task and sampling setting; a prompt is on one side only."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from math import ceil, lcm

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold

from selector.config import TrainConfig
from selector.dataset.dataset import RootDataset
from selector.errors import UserError
from selector.offline.labelled_roots import setting_pairs

FEWEST_PROMPTS = 3
FEWEST_FOLDS, MOST_FOLDS = 5, 20


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

    def missing_settings(self, dataset: RootDataset) -> dict[str, list[tuple[float, float]]]:
        """By part that has prompts: the sampling settings of `dataset` that none of them has."""
        settings = setting_pairs(dataset)
        own = {part.name: {settings[row] for row in self.rows(dataset, part.name)} for part in fields(self)}
        return {part: sorted(set(settings) - found) for part, found in own.items() if found}


def split_prompts(dataset: RootDataset, config: TrainConfig) -> Splits:
    """Deal the prompts into folds with scikit-learn, and give each part its share of the folds.

    A prompt counts once for its task, once for each of its sampling settings, and once for each pair of both, so that
    folds are alike in all three, the rarest label first. A setting with twice as many prompts as there are folds (five
    folds for shares of 0.2) is in every part.
    """
    ids = dataset.prompt_ids
    names = sorted(set(ids))
    if len(names) < FEWEST_PROMPTS:
        raise UserError(f"data set has {len(names)} prompts: give at least 3, to train, validate and test on.")
    count, num_test, num_validation = _fold_numbers(config, len(names))
    labels = {
        (prompt, label)
        for prompt, task, setting in zip(ids, dataset.tasks, setting_pairs(dataset), strict=True)
        for label in ("prompt", f"task {task}", f"setting {setting}", f"task {task}, setting {setting}")
    }
    prompts, strata = np.array(sorted(labels)).T
    folding = StratifiedGroupKFold(count, shuffle=True, random_state=config.split_seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label with fewer prompts than folds is in some of them
        folds = [prompts[rows].tolist() for _, rows in folding.split(prompts, strata, groups=prompts)]
    test = {prompt for fold in folds[:num_test] for prompt in fold}
    validation = {prompt for fold in folds[num_test : num_test + num_validation] for prompt in fold}
    return Splits(sorted(set(names) - test - validation), sorted(validation), sorted(test))


def _fold_numbers(config: TrainConfig, num_prompts: int) -> tuple[int, int, int]:
    """How many folds there are, and how many of them are for test and validation; at least one is left to train on.

    Shares are exact where they are whole numbers of at most 20 folds, else rounded to that.
    """
    shares = [max(share, 1 / MOST_FOLDS) for share in (config.test_share, config.validation_share) if share]
    wanted = lcm(*(Fraction(share).limit_denominator(MOST_FOLDS).denominator for share in shares))
    count = min(wanted * ceil(FEWEST_FOLDS / wanted), MOST_FOLDS, num_prompts)
    num_test = min(max(round(config.test_share * count), 1), count - 2) if config.test_share else 0
    return count, num_test, min(max(round(config.validation_share * count), 1), count - num_test - 1)
