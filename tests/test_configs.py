"""What is shipped: configurations parse, checkpoints load and choose."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from jsonargparse import Namespace

from selector.cli.main import build_parser
from selector.cli.parser import SECTIONS
from selector.config import Config
from selector.decoding.policies import SelectorPolicy
from selector.features import RootFeatures
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.checkpoint_config import HEADS
from selector.trees.expansion import ActionSpace
from selector.trees.verifiers import get_verifier

ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
CHECKPOINTS = sorted(path.parent for path in ROOT.glob("checkpoints/*/*/config.json") if "verifier" in path.read_text())


def test_something_is_shipped() -> None:
    assert len(CONFIGS) >= 2
    assert len(CHECKPOINTS) >= 8


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.stem))
def test_configurations(path: Path) -> None:
    parser = build_parser()
    parsed: Namespace = parser.parse_args(["run", "--config", str(path), "--out", "never"])
    sections = parser.instantiate(parsed)["run"]
    config = Config(**{name: sections[name] for name in SECTIONS})
    limits = config.action_space.limits
    space = ActionSpace(*limits)
    assert max(expansion.num_branches for expansion in space.drafted) == limits[0]
    for verifier in {*config.generate.verifiers, *config.train.verifiers}:
        assert get_verifier(verifier).name == verifier
    assert set(config.train.verifiers) <= set(config.generate.verifiers)
    assert [entry.name for entry in fields(config)] == list(SECTIONS)


@pytest.mark.parametrize("folder", CHECKPOINTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_checkpoints_load_and_choose(folder: Path) -> None:
    """Both heads choose an action of the space at roots of random features, through the call that decoding makes."""
    checkpoint = SelectorCheckpoint.load(folder)
    assert get_verifier(checkpoint.config.verifier).name == checkpoint.config.verifier
    assert checkpoint.best_static in checkpoint.space.expansions
    shape, generator = checkpoint.config.shape, torch.Generator().manual_seed(0)
    sizes = shape.target_hidden, shape.draft_hidden, shape.draft_hidden, shape.num_scalars
    root: Any = SimpleNamespace(context_length=40, match=None, features=lambda previous: features)
    for head in ("auto", *HEADS):
        policy = SelectorPolicy(checkpoint, head=head)
        features = RootFeatures(*(torch.randn(size, generator=generator) for size in sizes))
        assert policy.choose(root) in checkpoint.space.expansions
