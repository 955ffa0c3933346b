"""Probe passes of a model: whether it has what tree passes need, found by trying and not by its name.

That is: rows of keys and values in a plain attention cache, positions that follow `position_ids`, a 4-D mask that is
honoured, and rows that depend on earlier rows alone. A model without one of them would decode other texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from selector.engine.forward import OwnForward
from selector.engine.language_model import Scores
from selector.errors import UserError, first_line

#      0 -+- 1 --- 2
#         +- 3 --- (4)      row 4 comes after the path 0, 3 is kept
PARENTS, KEPT = [-1, 0, 1, 0], (0, 3)
WAY_OUT = "take a model with a plain attention cache, positions by id and 4-D masks (see selector/engine/README.md)"


def probe(model: Any, name: str) -> tuple[Scores, DynamicCache]:
    """A plain pass over the text that `check_trees` decodes: its scores, and the cache that it fills.

    Raises UserError when the pass fails or leaves no keys and values.
    """
    cache = DynamicCache()
    with _refused(name):
        scores = OwnForward(model)(_tokens(model)[[*KEPT, 4]][None], None, None, cache, 0)
    filled: list[Any] = list(cache.layers)
    if not filled or any(getattr(layer, "keys", None) is None or layer.keys.shape[2] != 3 for layer in filled):
        raise _unfit(name, "it fills no cache of keys and values")
    return scores, cache


def check_trees(engine: Any, plain: Scores, name: str) -> None:
    """Raises UserError where the rows of a tree, and of what follows its kept path, are not those of `plain`.

    Half of the digits of the model's dtype (of float32, if it has more) must agree: other shapes round differently.
    """
    tokens = _tokens(engine.model)
    with _refused(name):
        rows = engine.extend(tokens[:4], PARENTS).logits[list(KEPT)]
        engine.keep(KEPT)
        rows = torch.cat([rows, engine.extend(tokens[4:], [-1]).logits]).float()
    engine.reset()
    expected = plain.logits[:, : rows.shape[1]].float()
    precision = max(torch.finfo(dtype).eps for dtype in (engine.model.dtype, torch.float32))
    allowed = precision**0.5 * expected.abs().max()
    if bool(((rows - expected).abs() > allowed).any()):  # false for NaN, which decoding refuses
        raise _unfit(name, "its passes over a tree are not those over each path")


def _tokens(model: Any) -> Tensor:
    """Five tokens all over the vocabulary."""
    rows = int(model.get_input_embeddings().num_embeddings)
    return torch.tensor([rows * part // 7 for part in (1, 2, 3, 4, 5)], device=model.device)


@contextmanager
def _refused(name: str) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        reason = f"a pass over a tree fails with {type(error).__name__}: {first_line(error)}"
        raise _unfit(name, reason) from error


def _unfit(name: str, reason: str) -> UserError:
    return UserError(f"model {name!r} does not fit tree decoding, {reason}: {WAY_OUT}.")
