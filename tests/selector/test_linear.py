"""The closed-form start: it finds what is there, weighs by certainty, and shrinks where nothing is."""

import torch

from selector.linear import PENALTIES, fit_linear, label_deviation
from selector.network import BLOCKS, Inputs, NetworkShape, SelectorNetwork
from selector.trees.expansion import ActionSpace

SPACE = ActionSpace(2, 1, 2)
SHAPE = NetworkShape(6, 4, 9, (2, 1, 2), components=4, hidden_sizes=(8, 4))
TIMES = torch.ones(600, len(SPACE))


def world(noise: float, seed: int = 0) -> tuple[Inputs, torch.Tensor, torch.Tensor]:
    """Inputs, true expectations that follow one direction of the draft's state, and noisy labels."""
    generator = torch.Generator().manual_seed(seed)
    cause = torch.randn(600, 1, generator=generator)
    blocks = [torch.randn(600, size, generator=generator) for size in (6, 4, 4)]
    blocks[2] = 3 * cause + blocks[2]
    inputs = Inputs(*blocks, torch.rand(600, 11, generator=generator))
    truth = 2 + 0.3 * cause * torch.linspace(0, 1, len(SPACE))
    return inputs, truth, truth + noise * torch.randn(truth.shape, generator=generator)


def fitted(inputs: Inputs, labels: torch.Tensor, errors: torch.Tensor, **changes: object) -> tuple[torch.Tensor, float]:
    """What the linear model predicts at the last 200 roots after seeing the others, and its penalty."""
    network, rows = SelectorNetwork(SHAPE).eval(), slice(0, 400)
    deviation = label_deviation(labels, errors, torch.arange(600) < 400)
    seen = Inputs(*(block[rows] for block in inputs))
    prompts = torch.arange(400) // 8
    penalty = fit_linear(network, seen, labels[rows], deviation[rows], TIMES[rows], prompts, **changes)
    with torch.no_grad():
        encoded = network.encoder(Inputs(*(block[400:] for block in inputs)))
        return network.linear_bias + encoded @ network.linear_weight.T, penalty


def test_it_finds_a_direction_of_the_hidden_states():
    inputs, truth, labels = world(noise=0.2)
    predicted, _ = fitted(inputs, labels, torch.full_like(labels, 0.2))
    error = (predicted - truth[400:]).square().mean()
    assert error < 0.2 * (truth[400:] - truth.mean(0)).square().mean()


def test_a_block_that_is_left_out_tells_nothing():
    inputs, truth, labels = world(noise=0.1)
    without = [block for block in BLOCKS if block != "draft_hidden_root"]
    predicted, _ = fitted(inputs, labels, torch.full_like(labels, 0.1), blocks=without)
    error = (predicted - truth[400:]).square().mean()
    assert error > 0.8 * (truth[400:] - truth.mean(0)).square().mean()


def test_noise_is_shrunk_away():
    inputs, _, labels = world(noise=0.5)
    noise = labels[torch.randperm(600, generator=torch.Generator().manual_seed(1))]
    predicted, penalty = fitted(inputs, noise, torch.full_like(labels, 0.5))
    assert penalty >= PENALTIES[-3]
    assert predicted.std(0).max() < 0.1


def test_uncertain_labels_weigh_less():
    """Half of the roots have labels that are far off, and say so."""
    inputs, truth, labels = world(noise=0.1)
    bad = torch.arange(600) % 2 == 1
    labels[bad] += 4 * torch.randn(labels.shape, generator=torch.Generator().manual_seed(2))[bad]
    errors = torch.where(bad, 4.0, 0.1)[:, None].expand_as(labels)
    mistakes = []
    for given in (errors, torch.full_like(labels, 1.0)):
        predicted, _ = fitted(inputs, labels, given, penalty=10.0)
        mistakes.append(float((predicted - truth[400:]).square().mean()))
    assert mistakes[0] < 0.9 * mistakes[1]
