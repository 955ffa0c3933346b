"""Pass times of another machine are never taken in silence."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from selector.decoding.pass_times import foreign_times
from selector.decoding.profiling import machine_kind
from selector.engine.causal_model import HuggingFaceModel
from tests.support.profiles import make_profile


@pytest.mark.parametrize("changed", ["device", "threads", "dtype", None])
def test_times_of_another_kind_are_named(changed: str | None, target: HuggingFaceModel) -> None:
    pair: Any = SimpleNamespace(target=target, dtype=torch.float32)
    kind = machine_kind(pair)
    profile = replace(make_profile(), machine=kind | ({changed: "other"} if changed else {}))
    sentence = foreign_times(profile, pair)
    if changed is None:
        assert sentence is None
    else:
        assert sentence is not None
        assert "other" in sentence
        assert kind["device"] in sentence
