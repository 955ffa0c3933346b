"""What a selector chooses on machines whose wider passes look cheaper, as measured times sometimes do."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from selector.decoding.policies import SelectorPolicy
from selector.features import MATCH, SCALARS, Match, RootFeatures
from selector.network.network import NetworkShape, SelectorNetwork
from selector.offline.labelled_roots import build_roots
from selector.trees.expansion import ActionSpace, CopyExpansion, Expansion
from tests.support.profiles import make_profile
from tests.support.scripted_selectors import make_checkpoint
from tests.support.synthetic_data import make_dataset

LIMITS = (2, 2, 3, (2, 8), ((2, 0, 1),), ())
SPACE = ActionSpace(*LIMITS)
ODD = replace(make_profile(), target_seconds=((0.1, 0.001), (0.1, 0.001)))
MATCHED = Match(4, 3, 7, 9, 2, 1, False, 0.25)


@pytest.mark.parametrize("head", ["policy", "regressor"])
@pytest.mark.parametrize(("verifier", "mixed"), [("rbv", False), ("specinfer", True)])
def test_only_what_a_root_has_is_chosen(verifier: str, mixed: bool, head: str) -> None:
    shape = NetworkShape(6, 4, len(SCALARS), LIMITS, components=2, hidden_sizes=(4, 4), mixed=mixed)
    checkpoint = make_checkpoint(verifier=verifier, shape=shape, scalars=list(SCALARS))
    torch.manual_seed(0)
    checkpoint = type(checkpoint)(SelectorNetwork(shape).eval(), checkpoint.config)
    checkpoint.network.mean_efficiency.fill_(2.0)
    policy, generator = SelectorPolicy(checkpoint, ODD, head), torch.Generator().manual_seed(0)
    for match in (None, MATCHED):
        chosen = set()
        for _ in range(20):
            scalars = torch.randn(len(SCALARS), generator=generator)
            scalars[SCALARS.index(MATCH)] = 0.0 if match is None else match.length
            features = RootFeatures(*(torch.randn(size, generator=generator) for size in (6, 4, 4)), scalars)
            root: Any = SimpleNamespace(context_length=30, match=match, features=lambda previous, own=features: own)
            chosen.add(policy.choose(root))
        assert chosen <= set(policy.actions)
        copied = [action for action in chosen if isinstance(action, CopyExpansion)]
        assert not copied or match is not None
        assert mixed or not any(action.beside for action in copied)


@pytest.mark.parametrize(("verifier", "mixed"), [("rbv", False), ("specinfer", True)])
def test_what_a_verifier_does_not_take_costs_what_it_takes_in_its_place(verifier: str, mixed: bool) -> None:
    dataset = make_dataset(prompts=2, roots=4, verifiers=(verifier,))
    scalars = torch.zeros(len(dataset), len(SCALARS))
    scalars[::2, SCALARS.index(MATCH)] = 3.0
    labels = {verifier: torch.ones(len(dataset), 2, len(SPACE))}
    manifest = replace(dataset.manifest, action_space=LIMITS, scalars=list(SCALARS))
    roots = build_roots(replace(dataset, manifest=manifest, scalars=scalars, efficiency=labels), verifier, ODD)
    beside = SPACE.index(CopyExpansion(8, Expansion(2, 0, 1), True))
    alone, part = SPACE.index(CopyExpansion(8)), SPACE.index(SPACE.expansions[beside].drafted)
    for times in (roots.times, roots.selector_times):
        assert (times[1::2, beside] == times[1::2, part]).all()
        assert (times[1::2, alone] == times[1::2, 0]).all()
        assert ((times[::2, beside] == times[::2, part]) == (not mixed)).all()
        assert (times[::2, alone] != times[::2, 0]).all()
