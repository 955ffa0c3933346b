"""Work units: how tasks and settings cross, what an id depends on, refusals."""

from collections import Counter
from dataclasses import replace

import pytest

from data_gen.prompts.prompts import load_prompts
from data_gen.work_units import plan_units
from selector.errors import UserError
from tests.support.small_runs import small_config


def plan(prompt_file, **changes):
    return plan_units(small_config([prompt_file], **changes).generate, load_prompts([prompt_file]))


def test_tasks_and_settings_cross(prompt_file):
    units = plan(prompt_file)
    assert [unit.prompt.task for unit in units] == ["writing", "coding"] * 3
    cells = Counter((unit.prompt.task, unit.sampling.temperature, unit.sampling.top_p) for unit in units)
    assert len(cells) == 6
    assert len(plan(prompt_file, settings_per_prompt=3)) == 18


def test_ids_are_content_addressed(prompt_file):
    units = plan(prompt_file)
    assert len({unit.id for unit in units}) == 6
    assert [unit.id for unit in plan(prompt_file)] == [unit.id for unit in units]
    # a unit keeps its id when the trajectory is longer or more units are planned, and gets another one otherwise
    assert {unit.id for unit in units} < {unit.id for unit in plan(prompt_file, settings_per_prompt=2)}
    for changes in (
        {"seed": 1},
        {"system_prompt": "Be brief."},
        {"draft_warp": (1.0, 0.5)},
        {"settings": [(0.7, 1.0)]},
    ):
        assert not {unit.id for unit in units} & {unit.id for unit in plan(prompt_file, **changes)}
    prompts = load_prompts([prompt_file])
    other = [replace(prompt, messages=({"role": "user", "content": "another text"},)) for prompt in prompts]
    config = small_config([prompt_file]).generate
    assert not {unit.id for unit in units} & {unit.id for unit in plan_units(config, other)}


def test_draft_warp(prompt_file):
    assert all(unit.draft_sampling == unit.sampling for unit in plan(prompt_file))
    assert {unit.draft_sampling.temperature for unit in plan(prompt_file, draft_warp=(0.9, 1.0))} == {0.9}


@pytest.mark.parametrize(
    "changes",
    [
        {"num_samples": 3},
        {"num_samples": 0},
        {"root_every": 0},
        {"max_new_tokens": 0},
        {"settings": []},
        {"settings": [(1.0, 1.0), (1.0, 1.0)]},
        {"settings": [(-1.0, 1.0)]},
        {"settings_per_prompt": 4},
        {"verifiers": []},
        {"verifiers": ["nss", "nss"]},
        {"verifiers": ["magic"]},
    ],
)
def test_refusals(prompt_file, changes):
    with pytest.raises(UserError):
        plan(prompt_file, **changes)
