"""Figures of a trained selector for loggers: what there was to gain, and what it gains on held-out prompts."""

from __future__ import annotations

import numpy as np
import torch

from selector.dataset.dataset import RootDataset
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint, best_actions
from selector.offline.baselines import OracleGap, no_drafting, oracle, plain_decoding, score_policy
from selector.offline.labelled_roots import build_roots


def final_figures(
    checkpoint: SelectorCheckpoint, gap: OracleGap, test: RootDataset, profile: LatencyProfile
) -> dict[str, float]:
    """The checkpoint's own metrics, the oracle gap before training, and ratios on the roots of `test`, if any.

    Nothing is chosen by the latter.
    """
    found = {"oracle_gap": gap.gap, "oracle_gap_same_samples": gap.optimistic} | checkpoint.config.metrics
    return found | held_out_ratios(checkpoint, test, profile) if len(test) else found


def held_out_ratios(checkpoint: SelectorCheckpoint, test: RootDataset, profile: LatencyProfile) -> dict[str, float]:
    """Throughput of the selector by its default head, its own cost included, over that of what needs no choice."""
    config, roots = checkpoint.config, build_roots(test, checkpoint.config.verifier, profile)
    prediction = checkpoint.predict(test.hidden, test.scalars, test.context_length.double())
    chosen = best_actions(prediction, torch.from_numpy(roots.selector_times), config.default_head).numpy()
    selector = score_policy(roots, chosen, roots.selector_times).throughput
    always = np.full(len(roots), roots.space.index(checkpoint.best_static))
    static = score_policy(roots, always, roots.times).throughput
    return {
        "test_ratio_to_static": selector / static,
        "test_ratio_to_plain": selector / plain_decoding(roots).throughput,
        "test_ratio_to_no_drafting": selector / no_drafting(roots).throughput,
        "test_oracle_ratio_to_static": oracle(roots).throughput / static,
    }
