"""Selectors that may copy: only where there is a match, only what the verifier takes, learned from matched roots."""

from __future__ import annotations

import pytest
import torch

from selector.features import DRAFTED_SCALARS, MATCH, SCALARS
from selector.latency import LatencyProfile
from selector.network.network import Inputs, NetworkShape, SelectorNetwork
from selector.network.numpy_forward import SingleRoot
from selector.network.ridge import fit_linear
from selector.trees.expansion import ActionSpace, CopyExpansion, Expansion

LIMITS = (2, 1, 2, (2, 8), ((2, 0, 1),), ())
SPACE = ActionSpace(*LIMITS)
DRAFTED = len(SPACE.drafted)
ROOTS = 200


def shape(mixed: bool = True) -> NetworkShape:
    return NetworkShape(6, 4, len(SCALARS), LIMITS, components=2, hidden_sizes=(4, 4), mixed=mixed)


def inputs(generator: torch.Generator) -> Inputs:
    """Every other root has a match."""
    blocks = [torch.randn(ROOTS, size, generator=generator) for size in (6, 4, 4, len(SCALARS) + 2)]
    blocks[3][:, SCALARS.index("context_length")] = torch.randint(20, 90, (ROOTS,), generator=generator).float()
    blocks[3][:, SCALARS.index(MATCH)] = torch.arange(ROOTS) % 2 * torch.randint(1, 9, (ROOTS,), generator=generator)
    return Inputs(*blocks)


def fitted(mixed: bool = True, spoil: float = 0.0) -> tuple[SelectorNetwork, Inputs]:
    """A network fitted to labels that grow with the match; `spoil` is added to copies' labels where nothing matches."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    network, seen = SelectorNetwork(shape(mixed)).eval(), inputs(generator)
    match = seen.scalars[:, SCALARS.index(MATCH)]
    labels = 1 + torch.rand(ROOTS, len(SPACE), generator=generator)
    labels[:, DRAFTED:] += match[:, None]
    labels[match == 0, DRAFTED:] += spoil
    times = torch.linspace(1, 2, len(SPACE)).expand(ROOTS, -1)
    fit_linear(network, seen, labels, torch.full_like(labels, 0.1), times, torch.arange(ROOTS) // 8)
    return network, seen


@pytest.mark.parametrize("mixed", [True, False])
def test_what_cannot_be_taken_is_predicted_as_its_drafted_part(mixed: bool) -> None:
    network, seen = fitted(mixed)
    with torch.inference_mode():
        prediction = network(seen)
    matched = seen.scalars[:, SCALARS.index(MATCH)] > 0
    for action, copy in enumerate(SPACE.copies, DRAFTED):
        part = SPACE.index(copy.drafted)
        for values in (prediction.efficiency, prediction.policy_logits):
            assert torch.equal(values[~matched, action], values[~matched, part])
            same = bool(torch.equal(values[matched, action], values[matched, part]))
            assert same == (copy.beside and not mixed)


def test_numpy_chooses_as_torch_does() -> None:
    network, seen = fitted()
    profile = LatencyProfile((1, 100), (1,), ((1.0,), (2.0,)), ((1.0,), (2.0,)), (0.0,), (1.0, 1.0))
    single = SingleRoot(network, profile)
    for row in range(6):
        scalars = seen.scalars[row, : len(SCALARS)].numpy()
        latency = single._latency[int(scalars[SCALARS.index("context_length")])]
        known = seen.scalars[:, : len(SCALARS)], torch.tensor(latency).expand(ROOTS, 2)
        whole = Inputs(*seen[:3], torch.cat(known, 1))
        with torch.inference_mode():
            expected = network(whole)
        states = torch.cat([block[row].half().float() for block in seen[:3]]).numpy()
        found = torch.from_numpy(single.efficiency(states, scalars))
        torch.testing.assert_close(found, expected.efficiency[row], atol=5e-3, rtol=5e-3)


def test_copies_are_learned_where_there_is_a_match_alone() -> None:
    one, other = fitted()[0], fitted(spoil=50.0)[0]
    torch.testing.assert_close(one.linear_weight, other.linear_weight)
    torch.testing.assert_close(one.linear_bias, other.linear_bias)


def test_parts() -> None:
    for action, part in zip(SPACE.expansions, SPACE.drafted_parts, strict=True):
        assert SPACE.expansions[part] == action.drafted
    assert SPACE.expansions[SPACE.drafted_parts[-2]] == Expansion(1, 0, 0)
    assert SPACE.copies[-1] == CopyExpansion(8, Expansion(2, 0, 1), beside=True)
    assert tuple(SCALARS[: len(DRAFTED_SCALARS)]) == DRAFTED_SCALARS
