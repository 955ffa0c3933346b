"""Labels of one verifier joined with one machine's times: the table that policies are scored on, in numpy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from selector.dataset.dataset import RootDataset
from selector.latency import LatencyProfile
from selector.offline.throughput import Ints
from selector.statistics import Floats
from selector.trees.expansion import ActionSpace

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class LabelledRoots:
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

    def subset(self, rows: Mask | Ints) -> LabelledRoots:
        """Some of the roots, by mask or by index.

        Prompts and trajectories are numbered anew, so that a bootstrap sees only those that are there.
        """
        present, prompts = np.unique(self.prompts[rows], return_inverse=True)
        names = ("halves", "times", "selector_times", "plain", "tasks", "settings")
        return replace(
            self,
            **{name: getattr(self, name)[rows] for name in names},
            prompts=prompts,
            trajectories=np.unique(self.trajectories[rows], return_inverse=True)[1],
            prompt_names=tuple(self.prompt_names[index] for index in present),
        )


def build_roots(dataset: RootDataset, verifier: str, profile: LatencyProfile) -> LabelledRoots:
    """Join labels with the times of `profile`; no model is needed, so any machine's profile will do."""
    space = dataset.manifest.space
    context = dataset.context_length.double()
    prompt_names, prompts = np.unique(dataset.prompt_ids, return_inverse=True)
    task_names, tasks = np.unique(dataset.tasks, return_inverse=True)
    pairs = setting_pairs(dataset)
    setting_values = tuple(sorted(set(pairs)))
    settings = np.array([setting_values.index(pair) for pair in pairs])
    return LabelledRoots(
        space=space,
        halves=dataset.efficiency[verifier].double().numpy(),
        times=profile.action_times(context, space).numpy(),
        selector_times=profile.selector_times(context, space).numpy(),
        plain=profile.plain_time(context).numpy(),
        prompts=prompts,
        tasks=tasks,
        settings=settings,
        trajectories=np.unique(prompts * len(setting_values) + settings, return_inverse=True)[1],
        prompt_names=tuple(prompt_names.tolist()),
        task_names=tuple(task_names.tolist()),
        setting_values=setting_values,
    )


def setting_pairs(dataset: RootDataset) -> list[tuple[float, float]]:
    """(temperature, top-p) of each root; rounded, since float32 is what shards hold."""
    return [(round(temperature, 6), round(top_p, 6)) for temperature, top_p in dataset.settings.tolist()]
