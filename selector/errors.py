"""The one error that is meant for people: the command line prints its sentence and exits with code 2."""


class UserError(ValueError):
    """Bad input. The message is one sentence that names the field, the value and the way out."""
