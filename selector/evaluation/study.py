"""What the linear model learns from which inputs and from how much data, cross-validated over all prompts.

Every root is scored once, by a model that saw no root of its prompt; so all prompts count, and differences of a
percent show. It is the model that selectors start from (`selector.linear`), and takes seconds where networks take
minutes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.model_selection import GroupKFold

from selector.checkpoint import best_actions, network_inputs
from selector.evaluation.bootstrap import Interval, percentile_interval, prompt_sums, resample_counts, resampled_rates
from selector.evaluation.opponents import best_action, play
from selector.evaluation.roots import Ints, Roots, build_roots
from selector.latency import LatencyProfile
from selector.linear import fit_linear, label_deviation
from selector.network import BLOCKS, Inputs, NetworkShape, SelectorNetwork
from selector.records import RootDataset

FOLDS = 5
FEWEST_PROMPTS = 10
SHARES = (0.125, 0.25, 0.5, 1.0)
HIDDEN = BLOCKS[:3]
VARIANTS: dict[str, tuple[str, ...]] = {
    "all inputs": BLOCKS,
    "no hidden states": tuple(block for block in BLOCKS if block not in HIDDEN),
    "hidden states only": HIDDEN,
    **{f"without {name}": tuple(block for block in BLOCKS if block != name) for name in BLOCKS},
}


class Finding(NamedTuple):
    """Throughput over that of the best static tree, chosen on the same training prompts.

    Attributes:
        kind: `ablation` or `learning curve`.
        variant: which inputs, or the share of the training prompts.
        num_prompts: prompts that were learned from, on average over the folds.
    """

    kind: str
    variant: str
    ratio: Interval
    num_prompts: float


class Study:
    """The folds of one data set under one machine's times."""

    def __init__(
        self, dataset: RootDataset, verifier: str, profile: LatencyProfile, components: int, seed: int
    ) -> None:
        self.roots: Roots = build_roots(dataset, verifier, profile)
        context = dataset.context_length.double()
        self.errors = dataset.standard_error[verifier]
        self.inputs = network_inputs(dataset.hidden, dataset.scalars, context, profile)
        manifest = dataset.manifest
        hidden = manifest.hidden_sizes["target"], manifest.hidden_sizes["draft"]
        self.shape = NetworkShape(*hidden, len(manifest.scalars), manifest.action_space, components, (1, 1))
        self.seed = seed
        order = np.random.default_rng(seed).permutation(len(self.roots.prompt_names))
        folds = GroupKFold(min(FOLDS, len(order)))
        places = folds.split(np.empty(len(order)), groups=order)
        fold = np.empty(len(order), dtype=np.int64)
        for number, (_, held_out) in enumerate(places):
            fold[held_out] = number
        self.fold, self.order = fold[self.roots.prompts], order
        self.penalties: dict[tuple[int, float], float] = {}

    def choices(self, blocks: tuple[str, ...], share: float) -> tuple[Ints, Ints, float]:
        """Actions of the linear model and of the best static tree at every root, and how many prompts they saw."""
        chosen, static = np.empty(len(self.roots), np.int64), np.empty(len(self.roots), np.int64)
        seen = []
        for number in np.unique(self.fold):
            train, test = self.fold != number, self.fold == number
            static[test] = best_action(self.roots.subset(train))
            prompts = np.unique(self.roots.prompts[train])
            kept = sorted(prompts, key=lambda prompt: self.order[prompt])[: max(2, round(share * len(prompts)))]
            train &= np.isin(self.roots.prompts, kept)
            chosen[test] = self._predicted_best(int(number), train, test, blocks, share)
            seen.append(len(kept))
        return chosen, static, float(np.mean(seen))

    def _predicted_best(self, fold: int, train: Any, test: Any, blocks: tuple[str, ...], share: float) -> Ints:
        torch.manual_seed(self.seed)
        network = SelectorNetwork(self.shape).eval()
        efficiency, times = (torch.from_numpy(table) for table in (self.roots.efficiency, self.roots.selector_times))
        prompts = torch.from_numpy(self.roots.prompts)
        labels = efficiency.float()
        deviation = label_deviation(labels, self.errors, torch.from_numpy(train))
        # the penalty of all inputs serves every ablation: choosing it costs more than all else
        self.penalties[fold, share] = fit_linear(
            network, _rows(self.inputs, train), labels[train], deviation[train], times[train].float(), prompts[train],
            blocks, self.penalties.get((fold, share)),
        )  # fmt: skip
        with torch.inference_mode():
            prediction = network(_rows(self.inputs, test))
        return best_actions(prediction, times[test], "regressor").numpy()

    def ratio(self, chosen: Ints, static: Ints, resamples: int, level: float) -> Interval:
        """Throughput of the choices, which pay for choosing, over that of the static trees."""
        roots, count = self.roots, len(self.roots.prompt_names)
        outcomes = [play(roots, chosen, roots.selector_times), play(roots, static, roots.times)]
        seconds = np.stack([prompt_sums(outcome.token_seconds, roots.prompts, count) for outcome in outcomes], 1)
        tokens = prompt_sums(np.ones(len(roots)), roots.prompts, count)
        draws = resampled_rates(tokens, seconds, resample_counts(count, resamples, self.seed))
        value = outcomes[0].throughput / outcomes[1].throughput
        return percentile_interval(value, draws[:, 0] / draws[:, 1], level)


def study(
    dataset: RootDataset,
    verifier: str,
    profile: LatencyProfile,
    *,
    components: int = 16,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> list[Finding]:
    """Ablations with all data, and all inputs with less data; none for fewer than ten prompts."""
    if len(set(dataset.prompt_ids)) < FEWEST_PROMPTS:
        return []
    folds, findings = Study(dataset, verifier, profile, components, seed), []
    plans = [("ablation", name, blocks, 1.0) for name, blocks in VARIANTS.items()]
    plans += [("learning curve", f"{share:.1%}", BLOCKS, share) for share in SHARES]
    for kind, variant, blocks, share in plans:
        chosen, static, prompts = folds.choices(blocks, share)
        findings.append(Finding(kind, variant, folds.ratio(chosen, static, resamples, level), prompts))
    return findings


def _rows(inputs: Inputs, mask: Any) -> Inputs:
    return Inputs(*(block[torch.from_numpy(mask)] for block in inputs))
