"""The files beside a checkpoint by which transformers' `generate` decodes with it: `custom_generate="FOLDER"`."""

from __future__ import annotations

from importlib import metadata

FOLDER = "custom_generate"
GENERATE = '''\
"""Decoding with the selector of this repository: `model.generate(.., custom_generate=.., trust_remote_code=True)`."""

import inspect
from functools import partial

import ddte


def generate(model, checkpoint=None, revision=None, streamer=None, tokenizer=None, **arguments):
    """The text that `model.generate` would give by the same arguments; others are those of `ddte.ddte_generate`."""
    caller = inspect.currentframe().f_back  # transformers runs a copy of this file from its cache, and knows the place
    source = checkpoint or caller.f_locals.get("custom_generate")
    selector = source and ddte.SelectorCheckpoint.from_pretrained(source, revision)
    call = partial(ddte.ddte_generate, checkpoint=selector, streamer=streamer, tokenizer=tokenizer)
    return type(model).generate(model, **arguments, custom_generate=call)
'''


def hub_code() -> dict[str, str]:
    """Contents by path; the code that decodes is the installed ddte's, of this version or a later one."""
    return {f"{FOLDER}/generate.py": GENERATE, f"{FOLDER}/requirements.txt": f"ddte>={metadata.version('ddte')}\n"}
