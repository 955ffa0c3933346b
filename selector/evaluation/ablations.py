"""Ablations of inputs and learning curves of the linear model, cross-validated over the training prompts.

Held-out prompts have no part in it, since settings such as `train.inputs` are chosen by what it finds. Every root is
scored once, by a model that saw no root of its prompt; so all prompts count, and differences of a percent show. It is
the model that selectors start from (`network.ridge`), and takes seconds where networks take minutes. The encoder sees
no label and costs most, so all verifiers and all ablations share it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from selector.dataset.dataset import RootDataset
from selector.evaluation.metrics import PolicyScores
from selector.features import HIDDEN
from selector.latency import LatencyProfile
from selector.network.checkpoint import best_actions, network_inputs
from selector.network.network import (
    BLOCKS,
    INPUTS,
    LATENCY_SCALARS,
    Inputs,
    NetworkShape,
    SelectorNetwork,
    scalar_blocks,
)
from selector.network.ridge import fit_weights, label_deviation
from selector.offline.baselines import PolicyResult, best_action, score_policy
from selector.offline.labelled_roots import build_roots
from selector.statistics import Floats, Interval, Ints, resample_counts

FOLDS = 5
FEWEST_PROMPTS = 10
SHARES = (0.125, 0.25, 0.5, 1.0)
VARIANTS: dict[str, tuple[str, ...]] = {
    "all inputs": BLOCKS,
    "no hidden states": tuple(block for block in BLOCKS if block not in HIDDEN),
    "hidden states only": HIDDEN,
    "root only": INPUTS["root"],
    **{f"without {name}": tuple(block for block in BLOCKS if block != name) for name in BLOCKS},
}


class StudyResult(NamedTuple):
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


@dataclass(frozen=True)
class Fold:
    """Roots to score, and a share of the others to learn from.

    Attributes:
        train, test: which roots these are, `[N]` (bool).
        num_prompts: of the training roots.
        network: its encoder is fitted on the training roots; every linear model takes the place of the last one.
        encoded: the training roots, `[n, width]`.
        inputs: of the roots to score.
    """

    train: Tensor
    test: Tensor
    num_prompts: int
    network: SelectorNetwork
    encoded: Tensor
    inputs: Inputs


def make_folds(inputs: Inputs, prompts: Ints, shape: NetworkShape, share: float, seed: int) -> list[Fold]:
    """Folds by prompt (`prompts [N]` numbers them), each with a share of its training prompts, at least two."""
    place = np.random.default_rng(seed).permutation(int(prompts.max()) + 1)
    folds = []
    for number in range(FOLDS):
        others = np.flatnonzero(place % FOLDS != number)
        known = others[np.argsort(place[others])][: max(2, round(share * len(others)))]
        train, test = torch.from_numpy(np.isin(prompts, known)), torch.from_numpy(place[prompts] % FOLDS == number)
        torch.manual_seed(seed)
        network, seen = SelectorNetwork(shape).eval(), _rows(inputs, train)
        network.encoder.fit(seen)
        folds.append(Fold(train, test, len(known), network, network.encoder(seen), _rows(inputs, test)))
    return folds


def used_columns(shape: NetworkShape, blocks: Collection[str]) -> Tensor:
    """`[width]`: 1 where an encoded root tells of one of `blocks`, else 0."""
    used = torch.zeros(shape.width)
    hidden, scalars = (part.reshape(3, -1) for part in used.tensor_split([3 * shape.components]))
    for row, name in zip(hidden, HIDDEN, strict=True):
        row[:] = name in blocks
    for name, columns in scalar_blocks(shape.num_scalars + LATENCY_SCALARS).items():
        scalars[:, columns] = name in blocks
    return used


class Learner:
    """The linear model with one verifier's labels under one machine's times."""

    def __init__(self, dataset: RootDataset, verifier: str, profile: LatencyProfile, whole: Sequence[Fold]) -> None:
        """The best static trees that it is compared with are chosen on all training prompts of a fold."""
        self.verifier, self.roots = verifier, build_roots(dataset, verifier, profile)
        self.labels, self.errors = dataset.mean_efficiency(verifier), dataset.standard_error[verifier]
        self.matched = dataset.matched
        self.times, self.prompts = torch.from_numpy(self.roots.selector_times), torch.from_numpy(self.roots.prompts)
        actions = np.empty(len(self.roots), np.int64)
        for fold in whole:
            actions[fold.test.numpy()] = best_action(self.roots.subset(fold.train.numpy()))
        self.static = score_policy(self.roots, actions, self.roots.times)

    def outcome(self, folds: Sequence[Fold], blocks: Collection[str]) -> PolicyResult:
        """What the choices from some inputs yield at every root; they pay for choosing."""
        actions = np.empty(len(self.roots), np.int64)
        for fold in folds:
            train, used = fold.train, used_columns(fold.network.shape, blocks)
            deviation = label_deviation(self.labels, self.errors, train)[train]
            fit_weights(
                fold.network, fold.encoded * used, self.labels[train], deviation,
                self.times[train].float(), self.prompts[train], self.matched[train],
            )  # fmt: skip
            with torch.inference_mode():
                prediction = fold.network(fold.inputs)
            actions[fold.test.numpy()] = best_actions(prediction, self.times[fold.test], "regressor").numpy()
        return score_policy(self.roots, actions, self.roots.selector_times)

    def ratio(self, outcome: PolicyResult, counts: Floats, level: float) -> Interval:
        """Throughput over that of the static trees; `counts [resamples, prompts]` are the bootstrap's."""
        outcomes = {"learner": outcome, "best_static": self.static}
        return PolicyScores(self.verifier, self.roots, outcomes, counts, level).ratio("learner", "best_static")


def study(
    dataset: RootDataset,
    verifiers: Sequence[str],
    profile: LatencyProfile,
    *,
    components: int = 16,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, list[StudyResult]]:
    """By verifier: ablations with all data, and all inputs with less data; none for fewer than ten prompts."""
    names, prompts = np.unique(dataset.prompt_ids, return_inverse=True)
    if len(names) < FEWEST_PROMPTS:
        return {verifier: [] for verifier in verifiers}
    inputs = network_inputs(dataset.hidden, dataset.scalars, dataset.context_length.double(), profile)
    manifest = dataset.manifest
    hidden = manifest.hidden_sizes["target"], manifest.hidden_sizes["draft"]
    shape = NetworkShape(*hidden, len(manifest.scalars), manifest.action_space, components, (1, 1))
    folds = {share: make_folds(inputs, prompts, shape, share, seed) for share in SHARES}
    counts = resample_counts(len(names), resamples, seed)
    return {
        verifier: _study_one(Learner(dataset, verifier, profile, folds[1.0]), folds, counts, level)
        for verifier in verifiers
    }


def _study_one(learner: Learner, folds: dict[float, list[Fold]], counts: Floats, level: float) -> list[StudyResult]:
    found = {}

    def finding(kind: str, variant: str, blocks: tuple[str, ...], share: float) -> StudyResult:
        if (blocks, share) not in found:
            found[blocks, share] = learner.ratio(learner.outcome(folds[share], blocks), counts, level)
        num_prompts = float(np.mean([fold.num_prompts for fold in folds[share]]))
        return StudyResult(kind, variant, found[blocks, share], num_prompts)

    ablations = [finding("ablation", name, blocks, 1.0) for name, blocks in VARIANTS.items()]
    return [*ablations, *(finding("learning curve", f"{share:.1%}", BLOCKS, share) for share in SHARES)]


def _rows(inputs: Inputs, mask: Tensor) -> Inputs:
    return Inputs(*(block[mask] for block in inputs))
