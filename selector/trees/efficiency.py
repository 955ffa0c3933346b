"""Labels: block efficiency `E[tau + 1]` (arXiv 2602.16994) of every action and verifier, from one drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from selector.trees.depthwise import block_estimates, traversal_estimates, walk_estimates
from selector.trees.expansion import ActionSpace, Expansion
from selector.trees.super_tree_view import Drawing, Estimates
from selector.trees.verifiers import BLOCKS, get_verifier
from selector.verification.solvers import SOLVERS

ESTIMATORS: dict[str, Callable[[Drawing], Estimates]] = {
    name: partial(walk_estimates, solver=solver) for name, solver in SOLVERS.items()
}
ESTIMATORS |= {block.name: partial(block_estimates, router=block.router) for block in BLOCKS}
ESTIMATORS["traversal"] = traversal_estimates


def label_drawing(
    drawing: Drawing, space: ActionSpace, verifiers: Sequence[str]
) -> dict[str, Float[Tensor, " actions"]]:
    """For each verifier `[drafted actions]`, float64: unbiased estimates of `E[tau + 1]`, exact in the verification.

    Averages over drawings converge to each action's block efficiency at this root. One drawing serves all actions, so
    that their differences are less noisy than they are themselves; drawings may share nodes, and what is computed
    for one of them.
    """
    labels = {}
    for name in verifiers:
        estimates = ESTIMATORS[get_verifier(name).name](drawing)
        labels[name] = torch.tensor([_tokens(expansion, estimates) for expansion in space.drafted], dtype=torch.float64)
    return labels


def _tokens(expansion: Expansion, estimates: Estimates) -> float:
    """`1 + sum_d g_d`."""
    branches, trunk, length = expansion
    below = estimates.trees.get((branches, trunk), estimates.chain[trunk:])
    return 1 + sum(estimates.chain[:trunk]) + sum(below[:length])
