"""The worked examples of the founding notes, and the errors of a broken file."""

from pathlib import Path

import pytest
import torch

from selector.errors import UserError
from selector.trees.cases import check_cases

CASES = Path(__file__).parents[2] / "data" / "verification_examples.json"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_worked_examples(dtype):
    results = list(check_cases(CASES, dtype))
    assert len(results) > 80
    assert [result for result in results if not result.ok] == []


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 7}'])
def test_broken_file(tmp_path, text):
    path = tmp_path / "cases.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"^cases is .*cases\.json"):
        list(check_cases(path))


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        list(check_cases(tmp_path / "cases.json"))
