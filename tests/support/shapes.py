"""Shapes in signatures (`Float[Tensor, "nodes vocab"]`), checked in tests by beartype; import this first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import beartype
from jaxtyping import install_import_hook

CHECKED = ["selector.distributions", "selector.features", "selector.network", "selector.trees"]


def check_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Function that checks its arguments and its result where they are annotated as tensors, and nothing else.

    Tests pass stand-ins for most other types, and beartype takes no protocols.
    """
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if "Tensor" in str(hint)}
    return beartype(function)


install_import_hook(CHECKED, "tests.support.shapes.check_tensors")
