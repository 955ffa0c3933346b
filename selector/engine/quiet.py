"""Loading and converting models without transformers' progress bars."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

from transformers.utils import logging


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars inside: models load in seconds, and the bars cut through other output.

    The bar of the GGUF reader is tqdm's own and knows no switch, so it is written to nowhere; log messages go to the
    handlers that they had.
    """
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        if enabled:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
