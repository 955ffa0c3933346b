"""Prompts of the hub sets, streamed by `datasets`.

`NAME@REVISION` pins a set to a commit of its repository; `opus` has two repositories, which `opus_books` and
`opus_subtitles` name apart. What is pinned carries its revision in the prompts' `source`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from data_gen.prompts.hub_sets import HUB_SETS, HubPart, HubSet, Messages
from selector.errors import UserError

DEFAULT_COUNT = 400  # the paper's 350 training and 50 test prompts a set
SHUFFLE_SEED = 0


def find_set(source: str) -> HubSet | None:
    """The set that `NAME` or `NAME@REVISION` names, None for another source.

    Raises UserError for one revision of a set that has several repositories.
    """
    name, at, revision = source.partition("@")
    hub_set = HUB_SETS.get(name)
    if hub_set is None or not at:
        return hub_set
    if not revision:
        raise UserError(f"prompts is {source!r}: give a commit or a tag of the hub after the @.")
    if len({part.path for part in hub_set.parts}) > 1:
        raise UserError(
            f"prompts is {source!r}, but {name} is made from two repositories: pin `opus_books` and `opus_subtitles`."
        )
    return replace(hub_set, parts=tuple(replace(part, revision=revision) for part in hub_set.parts))


def load_rows(name: str, hub_set: HubSet, count: int) -> list[dict[str, Any]]:
    """The first `count` prompts (0: 400, as in the paper) of a shuffled hub set, as objects of the JSONL format.

    Raises UserError that names the built-in prompts and local files when the hub cannot be reached. `name` is what the
    user wrote.
    """
    prefix = name.partition("@")[0]
    try:
        turns = [_messages(part) for part in hub_set.parts]
        taken = _take(hub_set, turns, count or DEFAULT_COUNT)
    except Exception as error:  # network, hub and parquet errors share no base class
        reason = str(error).strip().splitlines()
        raise UserError(
            f"prompts is {name!r}, which cannot be loaded from the hub ({type(error).__name__}: "
            f"{reason[0] if reason else 'no message'}): connect, or give `builtin` or a local file in the JSONL "
            f"format, such as {hub_set.local_alternative}."
        ) from error
    return [
        {
            "id": f"{prefix}-{number:05d}", "task": hub_set.task, "source": part.source, "licence": part.licence,
            "messages": messages,
        }
        for number, (part, messages) in enumerate(taken)
    ]  # fmt: skip


def _take(hub_set: HubSet, turns: list[Iterator[Messages]], count: int) -> list[tuple[HubPart, Messages]]:
    """Round robin over the parts, without repeated prompts (LitBench repeats a prompt over its pairs)."""
    taken: list[tuple[HubPart, Messages]] = []
    seen: set[str] = set()
    running = list(zip(hub_set.parts, turns, strict=True))
    while running and len(taken) < count:
        for entry in list(running):
            part, messages = entry[0], next((m for m in entry[1] if m[-1]["content"] not in seen), None)
            if messages is None:
                running.remove(entry)
            elif len(taken) < count:
                seen.add(messages[-1]["content"])
                taken.append((part, messages))
    return taken


def _messages(part: HubPart) -> Iterator[Messages]:
    for index, row in enumerate(open_part(part)):
        messages = part.build(row, index)
        if messages is not None:
            yield messages


def open_part(part: HubPart) -> Iterator[dict[str, Any]]:
    """Stream the shuffled rows of one part."""
    from datasets import load_dataset

    columns = list(part.columns)
    only = {"columns": columns} if part.parquet else {}
    rows = load_dataset(part.path, part.config, split=part.split, revision=part.revision, streaming=True, **only)
    return iter(rows.select_columns(columns).shuffle(seed=SHUFFLE_SEED, buffer_size=part.buffer))
