"""`ddte bench efficiency`: which verifier accepts most on a data set's laws, at given trees, as markdown.

Labels are exact expectations over recorded laws of a pair, so that verifiers are compared without sampling noise of
their own; what varies is where they are compared, hence intervals over prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from selector.config import EvaluateConfig
from selector.dataset.dataset import RootDataset
from selector.errors import UserError
from selector.statistics import Floats, Interval, percentile_interval, prompt_sums, resample_counts
from selector.trees.expansion import Expansion


@dataclass(frozen=True)
class Mean:
    """Mean block efficiency of a verifier with one tree over all roots, beside the best verifier's with that tree.

    Attributes:
        efficiency: tokens a step.
        to_best: its difference to the best verifier's, paired: both see the same resampled prompts.
    """

    verifier: str
    action: Expansion
    efficiency: Interval
    to_best: Interval

    def to_dict(self) -> dict[str, Any]:
        """A JSON row."""
        parts = {"efficiency": self.efficiency, "to_best": self.to_best}
        figures = {f"{name}_{part}": value for name, own in parts.items() for part, value in own._asdict().items()}
        return {"verifier": self.verifier, "action": str(self.action), **figures}


def mean_efficiencies(dataset: RootDataset, actions: Sequence[Expansion], config: EvaluateConfig) -> list[Mean]:
    """All labelled verifiers at each action; a UserError names an action that has no labels."""
    columns = [dataset.manifest.space.index(action) for action in actions]
    names, prompts = np.unique(dataset.prompt_ids, return_inverse=True)
    if len(names) < 2:
        raise UserError(f"data holds roots of {len(names)} prompt: intervals over prompts need 2 or more.")
    counts = resample_counts(len(names), config.bootstrap, config.seed)
    roots = counts @ prompt_sums(np.ones(len(prompts)), prompts, len(names))
    found = []
    for action, column in zip(actions, columns, strict=True):
        labels = {
            verifier: dataset.mean_efficiency(verifier)[:, column].double().numpy()
            for verifier in dataset.manifest.verifiers
        }
        best = max(labels.values(), key=lambda values: float(values.mean()))

        def interval(values: Floats) -> Interval:
            draws = counts @ prompt_sums(values, prompts, len(names)) / roots
            return percentile_interval(float(values.mean()), draws, config.level)

        found += [
            Mean(verifier, action, interval(values), interval(values - best)) for verifier, values in labels.items()
        ]
    return found


def markdown(means: Sequence[Mean], dataset: RootDataset, config: EvaluateConfig) -> str:
    """Both tables, the best verifier of each tree in bold, and which others are not surely behind it."""
    prompts = len(set(dataset.prompt_ids))
    lines = [
        f"Tokens a step, mean over {len(dataset):,} roots of {prompts:,} prompts; {config.level:.0%} intervals over "
        f"prompts ({config.bootstrap:,} resamples).",
        "",
        *_table(means, [_bold(mean, f"{mean.efficiency:.2f}") for mean in means]),
        "",
        "Difference to the best verifier with the same tree, paired:",
        "",
        *_table(means, ["–" if _is_best(mean) else f"{mean.to_best:.3f}" for mean in means]),
        "",
        *_leaders(means),
    ]
    return "\n".join(lines)


def _table(means: Sequence[Mean], cells: Sequence[str]) -> list[str]:
    """Lines of a table of verifiers by actions."""
    actions = list(dict.fromkeys(mean.action for mean in means))
    rows: dict[str, list[str]] = {}
    for mean, cell in zip(means, cells, strict=True):
        rows.setdefault(f"`{mean.verifier}`", []).append(cell)
    lines = [["verifier", *(f"`{action}`" for action in actions)], ["---"] * (1 + len(actions))]
    return ["| " + " | ".join(line) + " |" for line in [*lines, *([name, *row] for name, row in rows.items())]]


def _is_best(mean: Mean) -> bool:
    return mean.to_best == (0.0, 0.0, 0.0)


def _bold(mean: Mean, text: str) -> str:
    return f"**{text}**" if _is_best(mean) else text


def _leaders(means: Sequence[Mean]) -> list[str]:
    """One sentence an action: the best verifier, and those whose interval of the difference reaches 0."""
    lines = []
    for action in dict.fromkeys(mean.action for mean in means):
        mine = [mean for mean in means if mean.action == action]
        best = [f"`{mean.verifier}`" for mean in mine if _is_best(mean)]
        near = [f"`{mean.verifier}`" for mean in mine if not _is_best(mean) and (mean.to_best.high or 0.0) >= 0]
        others = f"not surely behind: {', '.join(near)}" if near else "all others are surely behind"
        lines.append(f"- `{action}`: best {', '.join(best)}; {others}.")
    return lines
