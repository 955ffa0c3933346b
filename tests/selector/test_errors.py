"""What a library's error is quoted with."""

from __future__ import annotations

import pytest

from selector.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one.\ntwo"), "one"),
        (ValueError("  one: \n"), "one"),
        (ValueError(), "ValueError"),
        (ValueError(" \n "), "ValueError"),
        (KeyError("x"), "'x'"),
    ],
)
def test_the_first_line_of_an_error(error: Exception, line: str) -> None:
    assert first_line(error) == line
