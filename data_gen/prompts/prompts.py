"""Prompts: the built-in ones, JSONL files, and the paper's five hub sets."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from data_gen.prompts.hub_loading import find_set, load_rows
from data_gen.prompts.hub_sets import HUB_SETS
from selector.engine.prompts import encode_chat
from selector.errors import UserError

BUILTIN = {  # files of each built-in set
    "builtin": ("coding", "math_easy", "math_hard", "translation", "writing"),
    "copying": ("copying",),  # long sources to edit, correct and quote; no part of what selectors are trained on
}


@dataclass(frozen=True)
class Prompt:
    """One prompt: `messages` are chat turns `{"role", "content"}`; further keys of a JSONL line are ignored."""

    id: str
    task: str
    source: str
    licence: str
    messages: tuple[dict[str, str], ...]

    @property
    def digest(self) -> str:
        """Hash of the identity and the text, for content-addressed work units."""
        return sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def with_system(self, text: str) -> Prompt:
        """The prompt after a system turn, unless `text` is empty or it has one of its own."""
        if not text or self.messages[0]["role"] == "system":
            return self
        return replace(self, messages=({"role": "system", "content": text}, *self.messages))


def load_prompts(sources: Sequence[str], per_task: int = 0) -> list[Prompt]:
    """All prompts of `sources`: `builtin`, `copying`, hub sets (`NAME` or `NAME@REVISION`), or JSONL paths.

    At most `per_task` of a task are taken (0: all). Raises UserError for an unknown source, a broken line (file
    and line are named), or an id that comes twice.
    """
    if per_task < 0:
        raise UserError(f"prompts_per_task is {per_task}: give 0 (all) or more.")
    prompts: list[Prompt] = []
    taken: Counter[str] = Counter()
    seen: dict[str, str] = {}
    for source in sources:
        for place, prompt in _from_source(source, per_task):
            if prompt.id in seen:
                raise UserError(f"{place}: id is {prompt.id!r}, as in {seen[prompt.id]}: give every prompt its own id.")
            seen[prompt.id] = place
            taken[prompt.task] += 1
            if per_task == 0 or taken[prompt.task] <= per_task:
                prompts.append(prompt)
    if not prompts:
        raise UserError(f"prompts is {list(sources)}: there is no prompt in it; try 'builtin'.")
    return prompts


def rendered(prompts: Sequence[Prompt], tokenizer: Any, chat_template: bool, seed: int) -> list[list[int]]:
    """Token ids of all prompts in an order drawn by `seed`, so that the tasks are mixed."""
    ids = [encode_chat(tokenizer, prompt.messages, chat_template) for prompt in prompts]
    random.Random(seed).shuffle(ids)
    return ids


def _from_source(source: str, per_task: int) -> Iterable[tuple[str, Prompt]]:
    """Prompts of one source, each with the place that an error message names."""
    if source in BUILTIN:
        for task in BUILTIN[source]:
            name = f"{task}.jsonl"
            yield from _parse_lines(name, (files("data_gen.prompts") / "builtin" / name).read_text("utf-8"))
    elif (hub_set := find_set(source)) is not None:
        for row in load_rows(source, hub_set, per_task):
            yield f"hub set {source}", _parse(row)
    else:
        yield from _parse_lines(source, _read(source))


def _read(source: str) -> str:
    path = Path(source)
    if not path.is_file():
        known = ", ".join([*BUILTIN, *HUB_SETS])
        raise UserError(f"prompts is {source!r}: there is no such file; give a JSONL path or one of {known}.")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"prompts is {source!r}: it is not UTF-8 text ({error.reason} at byte {error.start})."
        ) from None


def _parse_lines(name: str, text: str) -> Iterable[tuple[str, Prompt]]:
    """Split at line feeds only: U+2028 and its like may stand inside a JSON string."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        try:
            yield place, _parse(json.loads(line))
        except RecursionError:
            raise UserError(f"{place} is broken: its JSON is nested too deep; mend or remove the line.") from None
        except ValueError as error:
            reason = f"not JSON ({error})" if isinstance(error, json.JSONDecodeError) else str(error)
            raise UserError(f"{place} is broken: {reason.rstrip('.')}; mend or remove the line.") from None


def _parse(row: Any) -> Prompt:
    """Check one JSONL object; ValueError says what is wrong."""
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    missing = [key for key in ("id", "task", "messages") if key not in row]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing")
    for key in ("id", "task"):
        if not isinstance(row[key], str) or not row[key].strip():
            raise ValueError(f"{key} must be a text that is not empty")
    messages = row["messages"]
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list of chat turns that is not empty")
    turns = tuple(_turn(message) for message in messages)
    prompt = Prompt(row["id"], row["task"], str(row.get("source", "")), str(row.get("licence", "")), turns)
    for key in ("id", "task", "source", "licence"):
        _check_unicode(key, getattr(prompt, key))
    return prompt


def _turn(message: Any) -> dict[str, str]:
    if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
        raise ValueError("every message needs a role and a content, both texts")
    if not message["content"].strip():
        raise ValueError("the prompt is empty")
    for key in ("role", "content"):
        _check_unicode(key, message[key])
    return {"role": message["role"], "content": message["content"]}


def _check_unicode(key: str, text: str) -> None:
    """JSON can escape one half of a surrogate pair, which no tokenizer and no file takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        raise ValueError(f"{key} has a lone surrogate ({half} at character {error.start})") from None
