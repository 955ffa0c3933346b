"""The paper's five prompt sets on the Hugging Face hub: ids, configurations, columns, templates.

No remote code is run and nothing is unpickled. Two of the sets are hosted as loading scripts, which `datasets` 4
and later refuse; for these a parquet copy (LiveCodeBench) or a substitute (OpenSubtitles) is named here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
