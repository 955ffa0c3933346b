"""What is kept after training, by gains and standard errors on the validation prompts."""

from types import SimpleNamespace

import pytest
import torch

from selector.network.network import NetworkShape, SelectorNetwork
from selector.training import selection

SHAPE = NetworkShape(3, 3, 4, (2, 1, 2), components=2, hidden_sizes=(2, 2))


@pytest.mark.parametrize(
    ("ridge", "trained", "kept"),
    [
        ((-1.0, 1.0), (1.9, 1.0), "static"),
        ((0.0, 0.0), (0.0, 0.0), "static"),
        ((0.1, 1.0), (1.9, 1.0), "ridge"),
        ((0.1, 1.0), (2.1, 1.0), "mlp"),
        ((-1.0, 1.0), (2.1, 1.0), "mlp"),
        ((1.0, float("inf")), (9.0, float("inf")), "static"),
    ],
)
def test_ridge_must_gain_and_mlp_must_gain_two_standard_errors(monkeypatch, ridge, trained, kept):
    """The network holds the state that is named."""
    network = SelectorNetwork(SHAPE)
    network.linear_weight.fill_(2.0)
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    state["linear_weight"].fill_(3.0)
    gains = iter([ridge, trained])
    monkeypatch.setattr(selection, "_best_choices", lambda *_: torch.zeros(1))
    monkeypatch.setattr(selection, "gain_over", lambda *_: next(gains))
    data = SimpleNamespace(validation_roots=None)
    assert selection.keep_best(network, state, data) == kept
    assert (network.linear_weight == {"static": 0.0, "ridge": 2.0, "mlp": 3.0}[kept]).all()
    assert any(parameter.any() for parameter in network.body.parameters()) == (kept == "mlp")
