"""The trained selectors as policies on recorded roots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from selector.dataset.dataset import RootDataset
from selector.errors import UserError
from selector.network.checkpoint import SelectorCheckpoint, best_actions
from selector.network.checkpoint_config import HEADS, Head
from selector.network.network import Prediction
from selector.offline.baselines import PolicyResult, score_policy
from selector.offline.labelled_roots import LabelledRoots
from selector.statistics import Floats


def check_fit(checkpoint: SelectorCheckpoint, dataset: RootDataset) -> None:
    """Refuse a data set of other models, features, actions or verifiers than the checkpoint's."""
    manifest, config = dataset.manifest, checkpoint.config
    checkpoint.check_pair(manifest.target_fingerprint, manifest.draft_fingerprint)
    if config.verifier not in manifest.verifiers:
        known = ", ".join(manifest.verifiers)
        raise UserError(f"verifier of the checkpoint is {config.verifier!r}: the data set has labels for {known} only.")
    if tuple(config.shape.action_space) != tuple(manifest.action_space):
        raise UserError(
            f"action_space of the checkpoint is {tuple(config.shape.action_space)}, of the data set "
            f"{tuple(manifest.action_space)}: evaluate it on a data set with its own action space."
        )
    if list(config.scalars) != list(manifest.scalars):
        raise UserError("scalars of checkpoint and data set differ: evaluate it on a data set of the same version.")


def selector_outcomes(
    checkpoints: Sequence[SelectorCheckpoint], dataset: RootDataset, roots: LabelledRoots
) -> tuple[dict[str, PolicyResult], Floats]:
    """Both heads of one verifier's selectors; several checkpoints are seeds, and outcomes their means.

    Returns:
        outcomes: `selector`, each checkpoint by the head that was better in its validation, then by each head all of
            them: `selector_policy` and `selector_regressor`; where it may copy, also `selector_drafted`, which may not.
        predicted: `E[tau + 1]` as the first checkpoint predicts it, `[roots, actions]`.
    """
    context, times = dataset.context_length.double(), torch.from_numpy(roots.selector_times)
    predictions = [checkpoint.predict(dataset.hidden, dataset.scalars, context) for checkpoint in checkpoints]
    heads: dict[str, list[Head]] = {"selector": [checkpoint.config.default_head for checkpoint in checkpoints]}
    heads |= {f"selector_{head}": [head] * len(checkpoints) for head in HEADS}
    outcomes = {}
    for policy, own in heads.items():
        chosen = [
            best_actions(prediction, times, head).numpy() for prediction, head in zip(predictions, own, strict=True)
        ]
        outcomes[policy] = score_policy(roots, np.stack(chosen), roots.selector_times)
    if roots.space.copies:
        drafted = len(roots.space.drafted)
        parts = [Prediction(*(part[..., :drafted] for part in prediction)) for prediction in predictions]
        chosen = [best_actions(part, times[:, :drafted], "regressor").numpy() for part in parts]
        outcomes["selector_drafted"] = score_policy(roots, np.stack(chosen), roots.selector_times)
    return outcomes, predictions[0].efficiency.double().numpy()
