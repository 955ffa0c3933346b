"""Rankings: the order of floats through whole numbers."""

from __future__ import annotations

import pytest
import torch

from selector.verification.ranking import RADIX_SIZE, ascending, rank


@pytest.mark.parametrize("size", [0, 1, 5, RADIX_SIZE // 2, RADIX_SIZE // 2 + 1, RADIX_SIZE - 1, RADIX_SIZE + 5])
@pytest.mark.parametrize("kind", ["positive", "signed", "many ties", "infinite"])
def test_same_order_as_a_stable_sort(size: int, kind: str, device: torch.device) -> None:
    values = torch.rand(size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
    if kind == "signed":
        values = values**3 - 0.3
    elif kind == "many ties":
        values = (7 * values).floor() / 7 - 0.5
    elif kind == "infinite":
        values = torch.where(values < 0.5, 1e-300 * values, torch.inf)
    values = values.to(device)
    assert torch.equal(ascending(values), values.argsort(stable=True))


def test_rank_of_zeros() -> None:
    target = torch.tensor([0.5, 0.0, 0.0, 0.2, 0.3], dtype=torch.float64)
    draft = torch.tensor([0.0, 0.0, 0.5, 0.25, 0.25], dtype=torch.float64)
    assert rank(target, draft).tolist() == [1, 2, 3, 4, 0]
