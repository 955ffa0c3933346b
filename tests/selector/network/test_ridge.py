"""The closed-form start: it finds what is there, weighs by certainty, and shrinks where nothing is."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import GroupKFold

from selector.network.network import Inputs, NetworkShape, SelectorNetwork
from selector.network.ridge import PENALTIES, fit_linear, fit_weights, label_deviation
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


def fitted(inputs: Inputs, labels: torch.Tensor, errors: torch.Tensor) -> tuple[torch.Tensor, float]:
    """What the linear model predicts at the last 200 roots after seeing the others, and its penalty."""
    network, rows = SelectorNetwork(SHAPE).eval(), slice(0, 400)
    deviation = label_deviation(labels, errors, torch.arange(600) < 400)
    seen = Inputs(*(block[rows] for block in inputs))
    penalty = fit_linear(network, seen, labels[rows], deviation[rows], TIMES[rows], torch.arange(400) // 8)
    with torch.no_grad():
        encoded = network.encoder(Inputs(*(block[400:] for block in inputs)))
        return network.linear_bias + encoded @ network.linear_weight.T, penalty


def test_it_finds_a_direction_of_the_hidden_states():
    inputs, truth, labels = world(noise=0.2)
    predicted, _ = fitted(inputs, labels, torch.full_like(labels, 0.2))
    error = (predicted - truth[400:]).square().mean()
    assert error < 0.2 * (truth[400:] - truth.mean(0)).square().mean()


def test_a_column_of_zeros_gets_no_weight():
    """Encoded inputs that are blanked out tell nothing, though the network sees them again later."""
    inputs, truth, labels = world(noise=0.1)
    network = SelectorNetwork(SHAPE).eval()
    network.encoder.fit(inputs)
    encoded = network.encoder(inputs)
    kept = torch.ones(SHAPE.width)
    kept[2 * SHAPE.components : 3 * SHAPE.components] = 0  # the draft's state at the root
    fit_weights(
        network,
        encoded * kept,
        labels,
        torch.full_like(labels, 0.1),
        TIMES,
        torch.arange(600) // 8,
        torch.zeros(600).bool(),
    )
    assert network.linear_weight[:, kept == 0].abs().max() < 1e-12
    predicted = network.linear_bias + encoded @ network.linear_weight.T
    error = (predicted - truth).square().mean()
    assert error > 0.8 * (truth - truth.mean(0)).square().mean()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("noise", "prompts"), [(0.1, 75), (1.0, 75), (3.0, 3)])
def test_it_is_the_cross_validated_ridge_regression_of_scikit_learn(noise: float, prompts: int, seed: int):
    """Weights count in the fit and in the validation error, as in a `GridSearchCV` whose scorer gets them.

    The encoder's principal components are drawn, hence several seeds: at noise 1 two penalties are nearly as good,
    and which is better hangs on the weights.
    """
    torch.manual_seed(seed)
    inputs, _, labels = world(noise)
    deviation = 0.5 + torch.rand(labels.shape, generator=torch.Generator().manual_seed(3))
    groups = torch.arange(600) * prompts // 600
    network = SelectorNetwork(SHAPE).eval()
    penalty = fit_linear(network, inputs, labels, deviation, TIMES, groups)
    features, targets = network.encoder(inputs).double().numpy(), labels.double().numpy()
    weights = 1 / deviation.double().square().mean(1).numpy()
    weights /= weights.mean()

    def validation_error(alpha: float) -> float:
        errors = []
        for train, test in GroupKFold(min(5, prompts)).split(features, groups=groups.numpy()):
            model = Ridge(alpha).fit(features[train], targets[train], sample_weight=weights[train])
            errors.append(mean_squared_error(targets[test], model.predict(features[test]), sample_weight=weights[test]))
        return float(np.mean(errors))

    best = min(PENALTIES, key=validation_error)
    assert penalty == best
    model = Ridge(best).fit(features, targets, sample_weight=weights)
    assert network.linear_weight.numpy() == pytest.approx(np.float32(model.coef_), abs=1e-6)
    assert network.linear_bias.numpy() == pytest.approx(np.float32(model.intercept_), abs=1e-6)


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
        predicted, _ = fitted(inputs, labels, given)
        mistakes.append(float((predicted - truth[400:]).square().mean()))
    assert mistakes[0] < 0.9 * mistakes[1]
