"""The losses against sums done by hand."""

import math

import pytest
import torch

from selector.network.ridge import label_deviation
from selector.training.module import policy_loss, regressor_loss

EFFICIENCY = torch.tensor([[1.0, 2.0], [1.0, 4.0], [1.0, 1.0]])
TIMES = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])


def test_policy_loss_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.5, 0.5]]))
    loss = policy_loss(logits, EFFICIENCY, TIMES, torch.ones(3), penalty=2.0, worst_fraction=0.5)
    ratios = [1.5 / 1.5, 3.25 / 1.75, 1.0 / 1.5]
    assert float(loss.log_ratio) == pytest.approx(-sum(map(math.log, ratios)) / 3)
    assert float(loss.penalty) == pytest.approx((1 / 3) ** 2 / 2), "two of three roots are the worst half"
    assert float(loss.loss) == pytest.approx(float(loss.log_ratio) + 2 * float(loss.penalty))
    assert float(loss.ratio) == pytest.approx(sum(ratios) / 3)


def test_one_root_is_always_in_the_worst_fraction():
    loss = policy_loss(torch.zeros(3, 2), EFFICIENCY, TIMES, torch.ones(3), penalty=1.0, worst_fraction=0.01)
    assert float(loss.penalty) == pytest.approx((1 / 3) ** 2)


def test_descent_finds_the_best_action_of_each_root():
    logits = torch.zeros(3, 2, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        policy_loss(logits, EFFICIENCY, TIMES, torch.ones(3), penalty=1.0, worst_fraction=0.5).loss.backward()
        optimizer.step()
    assert logits[1].argmax() == 1
    assert logits[2].argmax() == 0


def test_deviation_adds_spread_and_error_of_training_roots():
    efficiency = torch.tensor([[1.0], [3.0], [99.0]])
    errors = torch.tensor([[0.2], [0.4], [0.0]])
    deviation = label_deviation(efficiency, errors, torch.tensor([True, True, False]))
    typical, between = (0.04 + 0.16) / 2, 1.0 - 0.1
    expected = [math.sqrt(between + (own + typical) / 2) for own in (0.04, 0.16, 0.0)]
    assert deviation[:, 0].tolist() == pytest.approx(expected)


def test_deviation_of_labels_without_spread_is_positive():
    assert (label_deviation(torch.ones(4, 2), torch.zeros(4, 2), torch.ones(4, dtype=torch.bool)) > 0).all()


def test_certain_labels_weigh_more():
    predicted, label = torch.tensor([[1.5]]), torch.tensor([[1.0]])
    certain = regressor_loss(predicted, label, torch.tensor([[0.5]]))
    vague = regressor_loss(predicted, label, torch.tensor([[1.0]]))
    assert float(certain) == pytest.approx(4 * float(vague))
