"""Labels joined with times: numbering of prompts, settings and trajectories, and parts of the roots."""

import numpy as np
import pytest
import torch

from selector.offline.labelled_roots import build_roots
from tests.support.profiles import make_profile
from tests.support.synthetic_data import SETTINGS, make_dataset


def test_trajectories_are_prompts_at_settings():
    dataset = make_dataset(prompts=1, roots=4)
    dataset.prompt_ids = ["a", "a", "a", "b"]
    dataset.settings = torch.tensor([[0.2, 1.0], [0.2, 1.0], [1.0, 1.0], [0.2, 1.0]])
    assert build_roots(dataset, "specinfer", make_profile()).trajectories.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("by", ["mask", "rows"])
def test_a_part_is_the_table_of_the_part_of_the_data_set(by: str) -> None:
    """But for names of tasks and settings, which keep their numbers."""
    dataset, rows = make_dataset(prompts=6, roots=3, noise=0.1), np.array([0, 1, 7, 8, 12])
    mask = np.isin(np.arange(len(dataset)), rows)
    part = build_roots(dataset, "specinfer", make_profile()).subset(mask if by == "mask" else rows)
    alone = build_roots(dataset.subset(rows.tolist()), "specinfer", make_profile())
    for name in ("halves", "times", "selector_times", "plain", "prompts", "trajectories"):
        assert np.array_equal(getattr(part, name), getattr(alone, name)), name
    assert part.prompt_names == alone.prompt_names == ("prompt-000", "prompt-002", "prompt-004")
    assert part.setting_values == tuple(sorted(SETTINGS))
    assert [part.setting_values[place] for place in part.settings] == [alone.setting_values[p] for p in alone.settings]
