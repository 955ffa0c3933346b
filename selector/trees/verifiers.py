"""Verifiers by name."""

from __future__ import annotations

from selector.errors import UserError
from selector.trees.block import Block
from selector.trees.block_paths import BestRanked, FirstBranch, RankedRule
from selector.trees.traversal import Traversal
from selector.trees.verifier import Verifier
from selector.trees.walk import Walk
from selector.verification.solvers import SOLVERS

BLOCKS = (Block("bv", FirstBranch), Block("gbv", BestRanked), Block("rbv", RankedRule))
VERIFIERS: dict[str, Verifier] = {name: Walk(solver) for name, solver in SOLVERS.items()}
VERIFIERS |= {verifier.name: verifier for verifier in (*BLOCKS, Traversal())}

MIXED = frozenset({*SOLVERS, "traversal"})  # those that take trees drafted beside a copied chain


def get_verifier(name: str) -> Verifier:
    """The verifier of that name."""
    if name not in VERIFIERS:
        raise UserError(f"verifier is {name!r}: choose one of {', '.join(VERIFIERS)}.")
    return VERIFIERS[name]
