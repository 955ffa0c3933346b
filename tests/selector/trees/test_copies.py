"""Actions that copy: their text, their one form, and their places in an action space."""

from __future__ import annotations

import pytest

from selector.errors import UserError
from selector.trees.expansion import Action, ActionSpace, CopyExpansion, Expansion, parse_action

ACTIONS: list[tuple[str, Action, int, int]] = [
    ("(2, 1, 3)", Expansion(2, 1, 3), 4, 8),
    ("copy 8", CopyExpansion(8), 8, 9),
    ("copy 8 + (2, 0, 2)", CopyExpansion(8, Expansion(2, 0, 2)), 10, 13),
    ("copy 8 | (2, 0, 2)", CopyExpansion(8, Expansion(2, 0, 2), beside=True), 8, 13),
    ("copy 1 | (1, 0, 3)", CopyExpansion(1, Expansion(1, 0, 3), beside=True), 3, 5),
]


@pytest.mark.parametrize(("text", "action", "depth", "width"), ACTIONS)
def test_an_action_is_what_its_text_says(text: str, action: Action, depth: int, width: int) -> None:
    assert parse_action(text) == action
    assert str(action) == text
    assert (action.max_depth, action.width) == (depth, width)
    assert action.canonical() == action


def test_equal_trees_have_one_form() -> None:
    assert parse_action(" copy 3|1,2,1 ") == CopyExpansion(3, Expansion(1, 0, 3), beside=True)
    nothing = Expansion(4, 0, 0)
    assert (
        CopyExpansion(3, nothing, beside=True).canonical()
        == CopyExpansion(3, nothing).canonical()
        == (CopyExpansion(3))
    )


@pytest.mark.parametrize("text", ["copy", "copy 0", "copy 17", "copy 8 + 2", "copy 8 + (0, 0, 2)"])
def test_what_is_no_action_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is '"):
        parse_action(text)


def test_copies_stand_behind_the_drafted_actions() -> None:
    drafted = ActionSpace(2, 1, 2)
    space = ActionSpace(2, 1, 2, [1, 4], [(2, 0, 2)], [(1, 1, 1), (1, 0, 2)])
    assert space.expansions[: len(drafted)] == drafted.expansions == space.drafted
    assert [str(action) for action in space.copies] == [
        "copy 1", "copy 1 | (2, 0, 2)", "copy 1 + (1, 0, 2)", "copy 4", "copy 4 | (2, 0, 2)", "copy 4 + (1, 0, 2)",
    ]  # fmt: skip
    assert [space.index(action) for action in space.expansions] == list(range(len(space)))
    with pytest.raises(UserError, match=r"copy 2 is outside"):
        space.index(CopyExpansion(2))


@pytest.mark.parametrize(
    "copies",
    [([0],), ([17],), ([4, 4],), ([], [(2, 0, 2)]), ([4], [(0, 0, 2)]), ([4], [], [(2, 0, 0)]), ([4], [], [(2, 0)])],
)
def test_copies_that_are_none_are_refused(copies: tuple[list[int], ...]) -> None:
    with pytest.raises(UserError, match="give"):
        ActionSpace(2, 1, 2, *copies)
