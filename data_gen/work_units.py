"""Work units: a prompt at a sampling setting. Their ids are content-addressed, so that work is never done twice."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from data_gen.prompts.prompts import Prompt
from selector.artifacts.origin import content_hash
from selector.config import GenerateConfig
from selector.distributions import Sampling
from selector.trees.verifiers import get_verifier


@dataclass(frozen=True)
class WorkUnit:
    """One trajectory and its roots.

    Attributes:
        id: hash of the prompt, the settings and the seed.
        prompt_index: place of the prompt in the run's list.
        sampling, draft_sampling: warps of the target and of the draft.
    """

    id: str
    prompt: Prompt
    prompt_index: int
    sampling: Sampling
    draft_sampling: Sampling

    def seed(self, purpose: str) -> int:
        """Seed of everything that the unit draws for `purpose`."""
        return int(content_hash([self.id, purpose])[:15], 16)


def plan_units(config: GenerateConfig, prompts: list[Prompt]) -> list[WorkUnit]:
    """The units of a run. Prompt `i` of a task takes settings `i .. i + settings_per_prompt - 1`, in a circle.

    Tasks take turns, so that a data set that was stopped early holds something of each. The system prompt becomes
    part of the prompts, and thereby of the units' ids. Raises UserError for an unknown verifier.
    """
    for name in config.verifiers:
        get_verifier(name)
    tasks: dict[str, list[tuple[int, Prompt]]] = defaultdict(list)
    for index, prompt in enumerate(prompts):
        tasks[prompt.task].append((index, prompt.with_system(config.system_prompt)))
    units = []
    for place in range(max(map(len, tasks.values()))):
        for entries in tasks.values():
            if place < len(entries):
                units += _units_of(config, place, *entries[place])
    return units


def _units_of(config: GenerateConfig, place: int, index: int, prompt: Prompt) -> list[WorkUnit]:
    units = []
    for offset in range(config.settings_per_prompt):
        setting = _floats(config.settings[(place + offset) % len(config.settings)])
        draft = setting if config.draft_warp == "same" else _floats(config.draft_warp)
        identity = content_hash([prompt.digest, setting, draft, config.seed])
        units.append(WorkUnit(identity[:16], prompt, index, Sampling(*setting), Sampling(*draft)))
    return units


def _floats(setting: tuple[float, float]) -> tuple[float, float]:
    """So that 1 and 1.0 give the same id."""
    temperature, top_p = setting
    return float(temperature), float(top_p)
