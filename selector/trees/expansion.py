"""Actions of a decoding step: delayed expansions `(K, L1, L2)` (arXiv 2602.16994), copied trunks, and their space."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from selector.config import LONGEST_COPY, check_copies
from selector.errors import UserError

TREE = r"[(\[]?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*[)\]]?"


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
    def drafted(self) -> Expansion:
        """The drafted part: all of it."""
        return self

    @property
    def num_drafted(self) -> int:
        """Drafted tokens before equal prefixes are merged."""
        return self.trunk_length + self.num_branches * self.branch_length

    @property
    def width(self) -> int:
        """Rows that the target scores at most: the root and all tokens below it."""
        return 1 + self.num_drafted

    def canonical(self) -> Expansion:
        """The one form of this tree: chains are `(1, 0, length)`, and length 0 is `(1, 0, 0)`: do not speculate."""
        if self.num_branches == 1 or self.branch_length == 0:
            return Expansion(1, 0, self.max_depth)
        return self

    @classmethod
    def parse(cls, text: str) -> Expansion:
        """Read `(K, L1, L2)`; brackets and spaces may be left out."""
        match = re.fullmatch(rf"\s*{TREE}\s*", text)
        if match is None or int(match[1]) < 1:
            raise UserError(f"expansion is {text!r}: write (K, L1, L2) with K of 1 or more, for example (4, 0, 4).")
        return cls(*map(int, match.groups())).canonical()


class CopyExpansion(NamedTuple):
    """A chain of tokens copied from an earlier place of the text, and drafted tokens below its end or beside it.

    Where the text has no earlier place to copy from, the drafted part alone is left.

    Args:
        length: copied tokens, 1 to 16.
        drafted: the drafted part; `(1, 0, 0)` is none.
        beside: drafted from the root, beside the copied chain; otherwise below the chain's end.

    Returns:
        A named tuple; `str` writes `copy 8`, `copy 8 + (2, 0, 2)` (below) or `copy 8 | (2, 0, 2)` (beside).

    Example:
        >>> ddte.CopyExpansion(8, ddte.Expansion(2, 0, 2)).max_depth
        10
    """

    length: int
    drafted: Expansion = Expansion(1, 0, 0)
    beside: bool = False

    def __str__(self) -> str:
        join = f" {'|' if self.beside else '+'} {self.drafted}" if self.drafted.max_depth else ""
        return f"copy {self.length}{join}"

    @property
    def max_depth(self) -> int:
        below = self.drafted.max_depth
        return max(self.length, below) if self.beside else self.length + below

    @property
    def num_drafted(self) -> int:
        """See `Expansion.num_drafted`: copied tokens are not drafted."""
        return self.drafted.num_drafted

    @property
    def width(self) -> int:
        """See `Expansion.width`."""
        return self.drafted.width + self.length

    def canonical(self) -> CopyExpansion:
        """The one form of this action, see `Expansion.canonical`: nothing drafted is neither beside nor below."""
        drafted = self.drafted.canonical()
        return CopyExpansion(self.length, drafted, self.beside and drafted.max_depth > 0)


Action = Expansion | CopyExpansion


def parse_action(text: str) -> Action:
    """Read what `str` writes of either kind: `(2, 0, 2)`, `copy 8`, `copy 8 + (2, 0, 2)` or `copy 8 | (2, 0, 2)`."""
    match = re.fullmatch(rf"\s*copy\s+(\d+)\s*(?:([+|])\s*({TREE}))?\s*", text)
    if match is None and not text.strip().startswith("copy"):
        return Expansion.parse(text)
    if match is None or not 1 <= int(match[1]) <= LONGEST_COPY:
        raise UserError(
            f"action is {text!r}: write copy and 1 to {LONGEST_COPY} tokens, for example copy 8, "
            "copy 8 + (2, 0, 2) or copy 8 | (2, 0, 2)."
        )
    drafted = Expansion.parse(match[3]) if match[3] else Expansion(1, 0, 0)
    return CopyExpansion(int(match[1]), drafted, match[2] == "|").canonical()


class ActionSpace:
    """All canonical expansions up to a size, and copies; an action is an index into `expansions`.

    Chains `(1, 0, 0) .. (1, 0, L1 + L2)` come first, then trees by `(K, L1, L2)`, then for each copied length: it
    alone, with each tree beside it, and with each tree below it.

    Args:
        num_branches, trunk_length, branch_length: the largest drafted expansion.
        copied: lengths of copied chains, 1 to 16 tokens; none by default.
        beside, below: trees (K, L1, L2) that are drafted beside a copied chain, and below its end.
    """

    def __init__(
        self,
        num_branches: int,
        trunk_length: int,
        branch_length: int,
        copied: Sequence[int] = (),
        beside: Sequence[tuple[int, int, int]] = (),
        below: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        self.limits = Expansion(num_branches, trunk_length, branch_length)
        if num_branches < 1 or trunk_length < 0 or branch_length < 0:
            raise UserError(f"action space is {self.limits}: K must be 1 or more, L1 and L2 0 or more.")
        check_copies("action space", copied, beside, below)
        self.copied = tuple(copied)
        self.beside, self.below = (_canonical(trees) for trees in (beside, below))

    @cached_property
    def drafted(self) -> tuple[Expansion, ...]:
        """The actions without a copy, which come first."""
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
    def copies(self) -> tuple[CopyExpansion, ...]:
        """The actions with a copy, which come last."""
        parts = [
            (Expansion(1, 0, 0), False),
            *((tree, True) for tree in self.beside),
            *((tree, False) for tree in self.below),
        ]
        return tuple(CopyExpansion(length, *part) for length in self.copied for part in parts)

    @cached_property
    def expansions(self) -> tuple[Action, ...]:
        return self.drafted + self.copies

    @cached_property
    def drafted_parts(self) -> tuple[int, ...]:
        """For each action the one that is left of it where nothing can be copied: its drafted part."""
        return (*range(len(self.drafted)), *(self.index(copy.drafted) for copy in self.copies))

    @cached_property
    def _index(self) -> dict[Action, int]:
        return {expansion: action for action, expansion in enumerate(self.expansions)}

    def __len__(self) -> int:
        return len(self.expansions)

    def index(self, expansion: Action) -> int:
        """The action of an expansion, in any of its forms."""
        action = self._index.get(expansion.canonical())
        if action is None:
            copies = " and its copies" if self.copied else ""
            raise UserError(
                f"expansion {expansion} is outside the action space up to {self.limits}{copies}: take a smaller one."
            )
        return action


def _canonical(trees: Sequence[tuple[int, int, int]]) -> tuple[Expansion, ...]:
    return tuple(dict.fromkeys(Expansion(*tree).canonical() for tree in trees))
