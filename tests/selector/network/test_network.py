"""The network: what it predicts before training, its bounds, and its input statistics."""

import pytest
import torch

from selector.network.network import Inputs, NetworkShape, RootEncoder, SelectorNetwork, Standardise, curves
from selector.trees.expansion import ActionSpace

SPACE = ActionSpace(3, 2, 3)
SHAPE = NetworkShape(6, 4, 5, (3, 2, 3), components=4, hidden_sizes=(16, 8))


def random_inputs(rows: int, seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    return Inputs(*(3 * torch.randn(rows, size, generator=generator) + 1 for size in (6, 4, 4, 7)))


def random_network() -> SelectorNetwork:
    torch.manual_seed(0)
    network = SelectorNetwork(SHAPE)
    network.encoder.fit(random_inputs(50))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    network.set_linear(0.1 * torch.randn(len(SPACE), SHAPE.width), 1 + torch.rand(len(SPACE)))
    return network.eval()


def test_untrained_it_is_the_linear_model():
    network = SelectorNetwork(SHAPE).eval()
    inputs = random_inputs(50)
    network.encoder.fit(inputs)
    weight, bias = 0.01 * torch.randn(len(SPACE), SHAPE.width), torch.full((len(SPACE),), 1.5)
    network.set_linear(weight, bias)
    network.prices.copy_(torch.arange(len(SPACE)) / 10)
    prediction = network(inputs)
    linear = bias + network.encoder(inputs) @ weight.T
    bounded = linear.clamp(min=1).minimum(network.longest)
    assert torch.allclose(prediction.efficiency, bounded)
    assert torch.equal(prediction.policy_logits.argmax(1), (linear - network.prices).argmax(1))


def test_predictions_keep_their_bounds():
    efficiency = random_network()(random_inputs(30, seed=2)).efficiency
    depth = torch.tensor([float(expansion.max_depth) for expansion in SPACE.expansions])
    assert (efficiency >= 1).all()
    assert (efficiency <= 1 + depth).all()
    assert efficiency.std(0)[1:].min() > 0


def test_components_hold_what_the_hidden_states_share():
    generator = torch.Generator().manual_seed(1)
    cause = torch.randn(400, 1, generator=generator)
    noise = [0.3 * torch.randn(400, size, generator=generator) for size in (6, 4, 4)]
    inputs = Inputs(*(cause + block for block in noise), torch.randn(400, 7, generator=generator))
    encoder = RootEncoder(SHAPE)
    encoder.fit(inputs)
    encoded = encoder(inputs)
    assert encoded.shape == (400, SHAPE.width)
    for first in (0, 4, 8):
        assert abs(float(torch.corrcoef(torch.stack([encoded[:, first], cause[:, 0]]))[0, 1])) > 0.95
    assert torch.allclose(encoded[:, :12].std(0), torch.ones(12), atol=0.05)


@pytest.mark.parametrize("rows", [1, 3])
def test_few_and_constant_roots_give_finite_features(rows):
    encoder = RootEncoder(SHAPE)
    inputs = Inputs(*(torch.ones(rows, size) for size in (6, 4, 4, 7)))
    encoder.fit(inputs)
    assert torch.equal(encoder(inputs), torch.zeros(rows, SHAPE.width))


def test_curves_are_finite_below_zero():
    assert curves(torch.tensor([[4.0, -2.0]])).tolist() == [pytest.approx([4, -2, 2, 0, 2.718281828**-4, 1])]


def test_standardise_maps_constants_to_zero_and_clips():
    standardise = Standardise(2)
    standardise.fit(torch.tensor([[1.0, 3.0], [2.0, 3.0]]))
    assert standardise(torch.tensor([[1e9, 7.0]])).tolist() == [[5.0, 0.0]]


def test_all_parameters_get_gradients():
    network = random_network()
    prediction = network(random_inputs(8))
    (prediction.policy_logits.square().mean() + prediction.efficiency.mean()).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in network.parameters())
