"""The network: its structure, its starting point, and a numpy reference that other engines can port."""

import math

import numpy as np
import pytest
import torch

from selector.network import IncrementHead, Inputs, NetworkShape, SelectorNetwork, Standardise, increments
from selector.trees.expansion import ActionSpace

SPACE = ActionSpace(3, 2, 3)
SHAPE = NetworkShape(6, 4, 5, (3, 2, 3), projection=8, hidden_sizes=(16, 8))


def random_inputs(rows: int, seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    return Inputs(*(3 * torch.randn(rows, size, generator=generator) + 1 for size in (6, 4, 4, 7)))


def random_network() -> SelectorNetwork:
    torch.manual_seed(0)
    network = SelectorNetwork(SHAPE)
    mean = 1 + 0.4 * torch.tensor([float(expansion.max_depth) for expansion in SPACE.expansions])
    network.fit_statistics(random_inputs(50), mean, torch.randn(len(SPACE)))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return network.eval()


def numpy_reference(state: dict[str, np.ndarray], inputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The whole network at one root in numpy, from the tensors of `model.safetensors` alone."""

    def linear(name, x):
        return state[f"{name}.weight"] @ x + state[f"{name}.bias"]

    def standardise(name, x):
        return np.clip((x - state[f"{name}.mean"]) / state[f"{name}.scale"], -6, 6)

    def layer_norm(name, x):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * state[f"{name}.weight"] + state[f"{name}.bias"]

    def gelu(x):
        return 0.5 * x * (1 + np.array([math.erf(value / math.sqrt(2)) for value in x]))

    blocks = [
        layer_norm(f"project.{i}.1", linear(f"project.{i}.0", standardise(f"standardise.{i}", block)))
        for i, block in enumerate(inputs[:3])
    ]
    body = np.concatenate([*blocks, standardise("standardise_scalars", inputs[3])])
    body = gelu(linear("body.3", gelu(linear("body.0", body))))
    logits = state["policy_base"] + linear("policy", body)
    rises = 1 / (1 + np.exp(-(state["regressor.base"] + linear("regressor.linear", body))))
    efficiency = np.ones(len(SPACE))
    rise = iter(rises)
    for action, (branches, trunk, length) in enumerate(SPACE.expansions):
        if length > 0:  # previous: one level less; a tree of no branch tokens is the chain of its trunk
            shorter = (branches, trunk, length - 1) if branches == 1 or length > 1 else (1, 0, trunk)
            efficiency[action] = efficiency[SPACE.expansions.index(shorter)] + next(rise)
    return logits, efficiency


def test_numpy_reference_agrees():
    network, inputs = random_network(), random_inputs(20, seed=1)
    state = {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}
    with torch.no_grad():
        prediction = network(inputs)
    for row in range(20):
        logits, efficiency = numpy_reference(state, [block[row].double().numpy() for block in inputs])
        assert prediction.policy_logits[row].numpy() == pytest.approx(logits, abs=1e-4)
        assert prediction.efficiency[row].numpy() == pytest.approx(efficiency, abs=1e-4)
        assert int(prediction.policy_logits[row].argmax()) == int(logits.argmax())


def test_increments_cover_the_space():
    steps, paths = increments(SPACE)
    assert len(steps) == len(SPACE) - 1
    assert [len(path) for path in paths] == [expansion.max_depth for expansion in SPACE.expansions]
    for branches, trunk, length in SPACE.expansions:
        if branches > 1:
            path = paths[SPACE.index((SPACE.expansions[0].__class__)(branches, trunk, length))]
            assert path[:trunk] == paths[trunk], "a tree begins with the increments of its trunk's chain"


def test_predictions_keep_bounds_and_order():
    efficiency = random_network()(random_inputs(30, seed=2)).efficiency
    depth = torch.tensor([float(expansion.max_depth) for expansion in SPACE.expansions])
    assert (efficiency >= 1).all()
    assert (efficiency <= 1 + depth).all()
    for previous, action in increments(SPACE)[0]:
        assert (efficiency[:, action] >= efficiency[:, previous]).all()


def test_untrained_network_is_the_static_choice():
    network = SelectorNetwork(SHAPE).eval()
    mean = 1 + torch.tensor([1 - 0.6**expansion.max_depth for expansion in SPACE.expansions])
    base = torch.randn(len(SPACE), generator=torch.Generator().manual_seed(3))
    network.fit_statistics(random_inputs(50), mean, base)
    prediction = network(random_inputs(7))
    assert prediction.policy_logits.argmax(1).tolist() == [int(base.argmax())] * 7
    assert torch.allclose(prediction.efficiency, mean.expand(7, -1), atol=2e-2)


def test_increment_head_clips_means_outside_its_range():
    head = IncrementHead(4, SPACE)
    head.fit(torch.linspace(5, 1, len(SPACE)))
    assert torch.isfinite(head(torch.zeros(1, 4))).all()


def test_standardise_maps_constants_to_zero_and_clips():
    standardise = Standardise(2)
    standardise.fit(torch.tensor([[1.0, 3.0], [2.0, 3.0]]))
    assert standardise(torch.tensor([[1e9, 7.0]])).tolist() == [[6.0, 0.0]]


def test_all_parameters_get_gradients():
    network = random_network()
    prediction = network(random_inputs(8))
    (prediction.policy_logits.square().mean() + prediction.efficiency.mean()).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in network.parameters())
