"""Labels of one verifier joined with one machine's times: the table that policies are scored on, in numpy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from selector.dataset.dataset import RootDataset
from selector.latency import LatencyProfile
from selector.statistics import Floats, Ints
from selector.trees.expansion import ActionSpace
from selector.trees.verifiers import MIXED

Mask = NDArray[np.bool_]
IN_PROMPT = "copy_in_prompt"
LOOP_MATCH, LOOP_SHARE = 12, 0.2


@dataclass(frozen=True)
class LabelledRoots:
    """Roots with one verifier's labels and one profile's times.

    Attributes:
        space: the labelled actions. A copy at a root without an earlier match is its drafted part, in tokens and time.
        match: length of the earlier match at each root, 0 where nothing can be copied, `[roots]`.
        halves: expected tokens of a step with each action, from either half of the samples, `[roots, 2, actions]`.
        times: seconds of a step with each action, `[roots, actions]`; `selector_times` adds what a policy that
            looks at the root pays.
        plain: seconds of a token without speculation, `[roots]`.
        prompts, tasks, settings: indices into `prompt_names`, `task_names`, `setting_values`, `[roots]`.
        trajectories: numbers one prompt's text at one setting, `[roots]`.
        prompt_names, task_names, setting_values: sorted; a setting is (temperature, top-p).
    """

    space: ActionSpace
    match: Floats
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
        names = ("match", "halves", "times", "selector_times", "plain", "tasks", "settings")
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
    times, selector_times = profile.action_times(context, space).numpy(), profile.selector_times(context, space).numpy()
    unmatched, parts = ~dataset.matched.numpy()[:, None], list(space.drafted_parts)
    untaken = np.array([getattr(action, "beside", False) and verifier not in MIXED for action in space.expansions])
    times, selector_times = (np.where(unmatched | untaken, table[:, parts], table) for table in (times, selector_times))
    return LabelledRoots(
        space=space,
        match=dataset.match_length.double().numpy(),
        halves=dataset.efficiency[verifier].double().numpy(),
        times=times,
        selector_times=selector_times,
        plain=profile.plain_time(context).numpy(),
        prompts=prompts,
        tasks=tasks,
        settings=settings,
        trajectories=np.unique(prompts * len(setting_values) + settings, return_inverse=True)[1],
        prompt_names=tuple(prompt_names.tolist()),
        task_names=tuple(task_names.tolist()),
        setting_values=setting_values,
    )


def looping(dataset: RootDataset) -> Mask:
    """`[roots]`: those of texts that loop.

    A text loops where more than a fifth of its roots have an earlier match of 12 tokens or more in the answer itself;
    long matches in the prompt are what editing and quoting are made of.
    """
    long = (dataset.match_length >= LOOP_MATCH).numpy()
    if IN_PROMPT in dataset.manifest.scalars:
        long &= (dataset.scalars[:, dataset.manifest.scalars.index(IN_PROMPT)] == 0).numpy()
    pairs = zip(dataset.prompt_ids, setting_pairs(dataset), strict=True)
    _, texts = np.unique([f"{prompt} {setting}" for prompt, setting in pairs], return_inverse=True)
    shares = np.bincount(texts, weights=long) / np.bincount(texts)
    loops: Mask = (shares > LOOP_SHARE)[texts]
    return loops


def setting_pairs(dataset: RootDataset) -> list[tuple[float, float]]:
    """(temperature, top-p) of each root; rounded, since float32 is what shards hold."""
    return [(round(temperature, 6), round(top_p, 6)) for temperature, top_p in dataset.settings.tolist()]
