"""Decoders that are broken on purpose, as controls: each check is run on one, and must fail it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from selector.engine.language_model import LanguageModel, Scores
from selector.trees.draft_tree import DraftTree
from selector.trees.verifier import Decision, TreeVerifier


class _Around:
    """A model with one thing changed."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def fresh(self) -> LanguageModel:
        """See `LanguageModel.fresh`."""
        return type(self)(self._model.fresh())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class WrongPositions(_Around):
    """A tree is run as a chain: a row takes its place in the list as position, and sees all rows before it."""

    def extend(self, tokens: Tensor, parents: Sequence[int], last_rows: int = 0) -> Scores:
        """See `LanguageModel.extend`."""
        first = parents[0]
        return self._model.extend(tokens, range(first, first + len(parents)), last_rows)


class KeptRows(_Around):
    """Keeps as many rows as it should, but the first ones, whatever path was accepted."""

    def keep(self, path: Sequence[int]) -> None:
        """See `LanguageModel.keep`."""
        self._model.keep(range(len(path)))


class AlwaysAccept(TreeVerifier):
    """A verifier that accepts the copied chain, or the first branch, to its end: texts follow where those come from."""

    name = "always accept"

    def decide(self, tree: DraftTree, target_probs: Tensor) -> Decision:
        """See `TreeVerifier.decide`."""
        leaf, below = 0, [0]
        while below:
            leaf = below[0]
            below = [tree.copied_children[leaf]] if leaf in tree.copied_children else tree.topology.children[leaf]
        return Decision({leaf: 1.0}, lambda node: target_probs[node])
