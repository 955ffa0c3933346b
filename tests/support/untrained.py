"""An untrained selector of a pair that is loaded: its choices are arbitrary, its text is the target's."""

from __future__ import annotations

from typing import Any

import torch

from selector.artifacts.writing import as_json
from selector.decoding.profiling import describe_machine
from selector.engine.huggingface import Pair
from selector.features import SCALARS
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.checkpoint_config import CheckpointConfig
from selector.network.network import NetworkShape, SelectorNetwork


def untrained_selector(pair: Pair, machine: dict[str, Any] | None = None, **changes: Any) -> SelectorCheckpoint:
    """For verifier `naive`, with pass times of this machine, or of `machine`; `changes` are of its configuration."""
    target, draft = pair.target, pair.draft
    shape = NetworkShape(target.hidden_size, draft.hidden_size, len(SCALARS), (2, 1, 3))
    here = machine or describe_machine(pair)
    profile = LatencyProfile((1,), (1,), ((1.0,),), ((0.1,),), (0.0,), (1.0,), machine=here)
    values: dict[str, Any] = {
        "verifier": "naive", "shape": shape, "scalars": list(SCALARS), "default_head": "regressor",
        "draft_warp": "same", "target_fingerprint": target.fingerprint, "draft_fingerprint": draft.fingerprint,
        "sampling_range": {"temperature": [0.2, 1.2], "top_p": [0.9, 1.0]}, "profile": as_json(profile),
        "best_static": (2, 0, 2), "data_hash": "0" * 64,
    }  # fmt: skip
    torch.manual_seed(0)
    return SelectorCheckpoint(SelectorNetwork(shape), CheckpointConfig(**(values | changes)))
