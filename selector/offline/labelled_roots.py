"""The labelled roots of one verifier under one machine's times, as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selector.dataset.records import RootDataset
from selector.latency import LatencyProfile
from selector.offline.throughput import number_trajectories
from selector.statistics import Floats
from selector.trees.expansion import ActionSpace

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Roots:
    """Roots with one verifier's labels and one profile's times.

    Attributes:
        space: the labelled actions.
        halves: expected tokens of a step with each action, from either half of the samples, `[roots, 2, actions]`.
        times: seconds of a step with each action, `[roots, actions]`; `selector_times` adds what a policy that
            looks at the root pays.
        plain: seconds of a token without speculation, `[roots]`.
        prompts, tasks, settings: indices into `prompt_names`, `task_names`, `setting_values`, `[roots]`.
        trajectories: numbers one prompt's text at one setting, `[roots]`.
        prompt_names, task_names, setting_values: sorted; a setting is (temperature, top-p).
    """

    space: ActionSpace
    halves: Floats
    times: Floats
    selector_times: Floats
    plain: Floats
    prompts: Ints
    tasks: Ints
    settings: Ints
    trajectories: Ints
    prompt_names: tuple[str, ...]
    task_names: tuple[str, ...]
    setting_values: tuple[tuple[float, float], ...]

    def __len__(self) -> int:
        return len(self.plain)

    @cached_property
    def efficiency(self) -> Floats:
        """The label from all samples, `[roots, actions]`."""
        mean: Floats = self.halves.mean(1)
        return mean

    def subset(self, mask: Mask) -> Roots:
        """Some of the roots; prompts are numbered anew, so that a bootstrap sees only those that are there."""
        present, prompts = np.unique(self.prompts[mask], return_inverse=True)
        trajectories = np.unique(self.trajectories[mask], return_inverse=True)[1]
        names = ("halves", "times", "selector_times", "plain", "tasks", "settings")
        return replace(
            self,
            **{name: getattr(self, name)[mask] for name in names},
            prompts=prompts.astype(np.int64),
            trajectories=trajectories.astype(np.int64),
            prompt_names=tuple(self.prompt_names[index] for index in present),
        )


def build_roots(dataset: RootDataset, verifier: str, profile: LatencyProfile) -> Roots:
    """Join labels with the times of `profile`; no model is needed, so any machine's profile will do."""
    space = dataset.manifest.space
    context = dataset.context_length.double()
    prompt_names, prompts = _indices(dataset.prompt_ids)
    task_names, tasks = _indices(dataset.tasks)
    setting_values, settings = _indices([(round(t, 6), round(p, 6)) for t, p in dataset.settings.tolist()])
    return Roots(
        space=space,
        halves=dataset.efficiency[verifier].double().numpy(),
        times=profile.action_times(context, space).numpy(),
        selector_times=profile.selector_times(context, space).numpy(),
        plain=profile.plain_time(context).numpy(),
        prompts=prompts,
        tasks=tasks,
        settings=settings,
        trajectories=number_trajectories(dataset.prompt_ids, dataset.settings),
        prompt_names=tuple(prompt_names),
        task_names=tuple(task_names),
        setting_values=tuple(setting_values),
    )


def _indices(values: Sequence[Any]) -> tuple[list[Any], Ints]:
    names = sorted(set(values))
    place = {name: index for index, name in enumerate(names)}
    return names, np.array([place[value] for value in values], dtype=np.int64)
