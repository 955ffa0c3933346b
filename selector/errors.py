"""The error that is meant for people, and the line that a library's error is quoted with."""


class UserError(ValueError):
    """Bad input: the command line prints its message, one sentence that names field, value and way out, and exits 2."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message without its full stop; the name of its type where it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".: ") if lines else type(error).__name__
