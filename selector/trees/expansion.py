"""Actions of a decoding step: delayed expansions `(K, L1, L2)` (arXiv 2602.16994), and the space of them."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from selector.errors import UserError


class Expansion(NamedTuple):
    """A trunk of `trunk_length` drafted tokens, then `num_branches` i.i.d. branches of `branch_length`.

    A plain tuple (K, L1, L2) serves wherever one is asked for.

    Args:
        num_branches: `K`, 1 or more.
        trunk_length: `L1`, drafted tokens before the branches.
        branch_length: `L2`, drafted tokens of each branch.

    Returns:
        A named tuple; `canonical()` is the one form of equal trees, `parse(text)` reads what `str` writes.

    Raises:
        UserError: from `parse`, for a text that is no tree.

    Example:
        >>> ddte.Expansion(4, 2, 3).num_drafted
        14
        >>> str(ddte.Expansion(1, 2, 3).canonical())
        '(1, 0, 5)'
    """

    num_branches: int
    trunk_length: int
    branch_length: int

    def __str__(self) -> str:
        return f"({self.num_branches}, {self.trunk_length}, {self.branch_length})"

    @property
    def max_depth(self) -> int:
        return self.trunk_length + self.branch_length

    @property
    def num_drafted(self) -> int:
        """Drafted tokens before equal prefixes are merged; the target scores these and the root."""
        return self.trunk_length + self.num_branches * self.branch_length

    def canonical(self) -> Expansion:
        """The one form of this tree: chains are `(1, 0, length)`, and length 0 is `(1, 0, 0)`: do not speculate."""
        if self.num_branches == 1 or self.branch_length == 0:
            return Expansion(1, 0, self.max_depth)
        return self

    @classmethod
    def parse(cls, text: str) -> Expansion:
        """Read `(K, L1, L2)`; brackets and spaces may be left out."""
        match = re.fullmatch(r"\s*[(\[]?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*[)\]]?\s*", text)
        if match is None or int(match[1]) < 1:
            raise UserError(f"expansion is {text!r}: write (K, L1, L2) with K of 1 or more, for example (4, 0, 4).")
        return cls(*map(int, match.groups())).canonical()


class ActionSpace:
    """All canonical expansions up to a size; an action is an index into `expansions`.

    Chains `(1, 0, 0) .. (1, 0, L1 + L2)` come first, then trees by `(K, L1, L2)`.
    """

    def __init__(self, num_branches: int, trunk_length: int, branch_length: int) -> None:
        self.limits = Expansion(num_branches, trunk_length, branch_length)
        if num_branches < 1 or trunk_length < 0 or branch_length < 0:
            raise UserError(f"action space is {self.limits}: K must be 1 or more, L1 and L2 0 or more.")

    @cached_property
    def expansions(self) -> tuple[Expansion, ...]:
        branches, trunk, length = self.limits
        chains = [Expansion(1, 0, depth) for depth in range(trunk + length + 1)]
        trees = [
            Expansion(k, l1, l2)
            for k in range(2, branches + 1)
            for l1 in range(trunk + 1)
            for l2 in range(1, length + 1)
        ]
        return tuple(chains + trees)

    @cached_property
    def _index(self) -> dict[Expansion, int]:
        return {expansion: action for action, expansion in enumerate(self.expansions)}

    def __len__(self) -> int:
        return len(self.expansions)

    def index(self, expansion: Expansion) -> int:
        """The action of an expansion, in any of its forms."""
        action = self._index.get(expansion.canonical())
        if action is None:
            raise UserError(
                f"expansion {expansion} is outside the action space up to {self.limits}: take a smaller one."
            )
        return action
