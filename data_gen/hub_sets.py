"""The paper's five prompt sets on the Hugging Face hub: ids, configurations, columns, templates.

No remote code is run and nothing is unpickled. Two of the sets are hosted as loading scripts, which `datasets` 4
and later refuse; for these a parquet copy (LiveCodeBench) or a substitute (OpenSubtitles) is named here.

`NAME@REVISION` pins a set to a commit of its repository; `opus` has two repositories, which `opus_books` and
`opus_subtitles` name apart. What is pinned carries its revision in the prompts' `source`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from selector.errors import UserError

DEFAULT_COUNT = 400  # the paper's 350 training and 50 test prompts a set
SHUFFLE_SEED = 0
LANGUAGES = {"en": "English", "fr": "French", "es": "Spanish", "it": "Italian"}
BOXED = "Please reason step by step, and put your final answer within \\boxed{}."
CODING_SYSTEM = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests."
)

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class HubPart:
    """One configuration of one hub data set. `columns` are all that is read; a shuffle needs only `buffer` rows.

    `build(row, index)` gives the messages, or None for a row that is left out. `revision` pins a commit. Of `parquet`
    files the other columns are not even downloaded.
    """

    path: str
    config: str | None
    split: str
    columns: tuple[str, ...]
    build: Callable[[dict[str, Any], int], Messages | None]
    licence: str
    revision: str | None = None
    buffer: int = 10_000
    parquet: bool = True

    @property
    def source(self) -> str:
        """The repository, and its revision where that is pinned."""
        return f"{self.path}@{self.revision}" if self.revision else self.path


@dataclass(frozen=True)
class HubSet:
    """A task made from one or more parts, taken in turn."""

    task: str
    parts: tuple[HubPart, ...]
    local_alternative: str


def _user(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def _problem(column: str) -> Callable[[dict[str, Any], int], Messages | None]:
    return lambda row, _: _user(f"{row[column].strip()}\n\n{BOXED}") if row[column].strip() else None


def _coding(row: dict[str, Any], _: int) -> Messages:
    """The prompt as the authors of LiveCodeBench build it."""
    starter = (row.get("starter_code") or "").strip()
    if starter:
        form = "You will use the following starter code to write the solution to the problem and enclose your code "
        form += f"within delimiters.\n```python\n{starter}\n```"
    else:
        form = "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on "
        form += "the sample inputs). Enclose your code within delimiters as follows.\n```python\n# YOUR CODE HERE\n```"
    question = row["question_content"].strip()
    text = f"### Question:\n{question}\n\n### Format: {form}\n\n### Answer: (use the provided format with backticks)\n"
    return [{"role": "system", "content": CODING_SYSTEM}, *_user(text)]


def _writing(row: dict[str, Any], _: int) -> Messages | None:
    text = re.sub(r"^\s*\[[A-Za-z ]{1,12}\]\s*", "", row["prompt"]).strip()
    return _user(text) if text else None


def _translation(pair: dict[str, Any], index: int) -> Messages | None:
    """Directions alternate; headings and very long passages are left out."""
    source, target = sorted(pair) if index % 2 == 0 else sorted(pair, reverse=True)
    text = (pair[source] or "").strip()
    if not 20 <= len(text) <= 600:
        return None
    instruction = f"Translate the following {LANGUAGES[source]} text into {LANGUAGES[target]}."
    return _user(f"{instruction} Give only the translation.\n\n{text}")


def _books(config: str) -> HubPart:
    def build(row: dict[str, Any], index: int) -> Messages | None:
        return _translation(row["translation"], index)

    licence = "personal, educational and research use"
    return HubPart("Helsinki-NLP/opus_books", config, "train", ("translation",), build, licence)


def _subtitles(config: str) -> HubPart:
    other = config.removeprefix("en-")

    def build(row: dict[str, Any], index: int) -> Messages | None:
        return _translation({"en": row["english"], other: row["non_english"]}, index)

    path = "sentence-transformers/parallel-sentences-opensubtitles"
    return HubPart(path, config, "train", ("english", "non_english"), build, "unknown")


_BOOKS = [_books(config) for config in ("en-fr", "en-es", "en-it", "es-fr", "es-it", "fr-it")]
_SUBTITLES = [_subtitles(config) for config in ("en-fr", "en-es", "en-it")]
HUB_SETS: dict[str, HubSet] = {
    "math500": HubSet(
        "math_easy",
        (
            HubPart(
                "HuggingFaceH4/MATH-500", None, "test", ("problem",), _problem("problem"), "not stated", parquet=False,
            ),
        ),
        "math_easy.jsonl",
    ),
    "olympiadbench": HubSet(
        "math_hard",
        (
            HubPart(
                "Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train", ("question",), _problem("question"),
                "Apache-2.0", revision="91184b52131e7fc9455fef848035173aea8cc01a",
            ),
        ),
        "math_hard.jsonl",
    ),
    # Rows of this set carry megabytes of hidden tests, hence the short shuffle buffer.
    "livecodebench": HubSet(
        "coding",
        (
            HubPart(
                "lighteval/code_generation_lite", "release_v6", "test", ("question_content", "starter_code"), _coding,
                "cc", buffer=1_100,
            ),
        ),
        "coding.jsonl",
    ),
    "litbench": HubSet(
        "writing",
        (HubPart("SAA-Lab/LitBench-Train", None, "train", ("prompt",), _writing, "not stated"),),
        "writing.jsonl",
    ),
    "opus": HubSet(
        "translation",
        tuple(itertools.chain.from_iterable(zip(_BOOKS, _SUBTITLES * 2, strict=True))),
        "translation.jsonl",
    ),
    "opus_books": HubSet("translation", tuple(_BOOKS), "translation.jsonl"),
    "opus_subtitles": HubSet("translation", tuple(_SUBTITLES), "translation.jsonl"),
}  # fmt: skip


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
