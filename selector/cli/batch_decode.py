"""`ddte decode --prompts`: many prompts to one JSONL file, resumable, with failures named."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from functools import reduce
from hashlib import sha256
from io import SEEK_END, FileIO
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from data_gen.prompts.prompts import Prompt, load_prompts
from selector.artifacts.claims import sole_writer
from selector.artifacts.writing import write_bytes
from selector.config import DecodeConfig
from selector.decoding.decoder import Decoder
from selector.distributions import Sampling
from selector.engine.prompts import encode_chat
from selector.errors import UserError, first_line

STDIN = "-"
ROW_START = re.compile(rb'\{"id": "(?:[^"\\]|\\.)*", "prompt": "[0-9a-f]{64}"')
ROW_PARTS = [r"\{", *'"id": "', r'(?:[^"\\]|\\.)*(?:\\\Z)?', *'", "prompt": "', *["[0-9a-f]"] * 64, '"']  # of ROW_START
ROW_CUT = re.compile(reduce(lambda rest, part: rf"(?:{part}{rest}|\Z)", reversed(ROW_PARTS), "").encode())


def read_prompts(source: str, stdin: TextIO | None = None) -> list[Prompt]:
    """Prompts of a JSONL file or whatever else `ddte generate` reads; with `-`, each line of stdin is one."""
    if source != STDIN:
        return load_prompts([source])
    lines = enumerate(stdin or sys.stdin, 1)
    prompts = [
        Prompt(f"line-{number}", "stdin", "", "", ({"role": "user", "content": line.strip()},))
        for number, line in lines
        if line.strip()
    ]
    if not prompts:
        raise UserError("prompts is '-', and standard input holds no text: give one prompt a line.")
    return prompts


class Answers:
    """The JSONL file: a row a prompt. A failed prompt's row has an `error`; the next call tries it again.

    A row holds `id`, `prompt` (a hash of it), `settings`, `seed`, and `text`, `tokens`, `finish`, `statistics`.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        """Read what is there; nothing is changed. Raises UserError if it is something else or of other settings."""
        self.path, self.settings = path, settings
        self.read()

    def read(self) -> None:
        """Take what the file holds now."""
        self.done: dict[str, str] = {}
        self._kept: list[bytes] = []
        content = self.path.read_bytes() if self.path.exists() else b""
        *lines, torn = content.split(b"\n")
        if torn and not (ROW_CUT if lines else ROW_START).match(torn):
            lines.append(torn)  # no row that was cut off while it was written, so it must not be dropped
        for number, line in enumerate(lines, 1):
            self._read(line, number)
        self._stale = content != b"".join(line + b"\n" for line in self._kept)

    def _read(self, line: bytes, number: int) -> None:
        try:
            row = json.loads(line.decode())
            identity, prompt, settings = row["id"], row["prompt"], dict(row["settings"])
        except (ValueError, TypeError, KeyError):
            message = f"out is {str(self.path)!r}, and its line {number} is no row of `ddte decode`: give another file."
            raise UserError(message) from None
        if settings != self.settings:
            names = sorted(name for name in self.settings if self.settings[name] != settings.get(name)) or ["settings"]
            raise UserError(
                f"out is {str(self.path)!r}, whose rows have {names[0]} {settings.get(names[0])!r}, "
                f"not {self.settings.get(names[0])!r}: give another file, or the same settings."
            )
        if "error" not in row:
            self.done[identity] = prompt
            self._kept.append(line)

    def left(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Prompts without a row. Raises UserError for an id whose row answers another prompt."""
        for prompt in prompts:
            if self.done.get(prompt.id, prompt.digest) != prompt.digest:
                message = f"out is {str(self.path)!r}, where id {prompt.id!r} is another prompt: give another file."
                raise UserError(message)
        return [prompt for prompt in prompts if prompt.id not in self.done]

    def write(self, rows: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
        """Append rows as they come, after dropping a torn line and failures; returns new failures as (id, error)."""
        failures = []
        if self._stale or not self.path.exists():
            write_bytes(self.path, b"".join(line + b"\n" for line in self._kept))
        with self.path.open("ab", buffering=0) as file:
            for row in rows:
                _append(file, json.dumps(row, ensure_ascii=False).encode() + b"\n")
                if "error" in row:
                    failures.append((row["id"], row["error"]))
        return failures


def _append(file: FileIO, line: bytes) -> None:
    """All of a line, or nothing of it where the disk is full."""
    start = file.seek(0, SEEK_END)
    try:
        while line:
            line = line[file.write(line) :]
    except OSError:
        file.truncate(start)
        raise


def answer(decoder: Decoder, prompt: Prompt, decode: DecodeConfig, settings: dict[str, Any]) -> dict[str, Any]:
    """One row. Each prompt has its own seed, which depends on the seed given and its id and on no other prompt."""
    seed = int.from_bytes(sha256(f"{decode.seed} {prompt.id}".encode()).digest()[:4], "big")
    row: dict[str, Any] = {"id": prompt.id, "prompt": prompt.digest, "seed": seed, "settings": settings}
    try:
        ids = encode_chat(decoder.pair.tokenizer, prompt.messages)
        generation = decoder.generate(ids, decode.max_new_tokens, Sampling.of(decode), seed)
    except UserError as error:
        return row | {"error": str(error)}
    except Exception as error:
        return row | {"error": f"{type(error).__name__}: {first_line(error)}"}
    return row | {
        "text": generation.text,
        "tokens": generation.tokens,
        "finish": generation.finish,
        "statistics": generation.stats.to_dict(),
    }


def decode_all(decoder: Decoder, prompts: Sequence[Prompt], answers: Answers, decode: DecodeConfig) -> int:
    """Answer what is left, with a progress bar on standard error; the exit code, 1 when a prompt failed."""
    console = Console(stderr=True)
    with sole_writer("out", answers.path):
        answers.read()  # what another run may have written since
        return _decode_left(decoder, prompts, answers, decode, console)


def _decode_left(
    decoder: Decoder, prompts: Sequence[Prompt], answers: Answers, decode: DecodeConfig, console: Console
) -> int:
    left = answers.left(prompts)
    if len(left) < len(prompts):
        console.print(f"{answers.path}: {len(prompts) - len(left)} of {len(prompts)} prompts are there already.")
    columns = (TextColumn("decoding"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        rows = (answer(decoder, prompt, decode, answers.settings) for prompt in left)
        failures = answers.write(progress.track(rows, total=len(left)))
    for identity, error in failures:
        console.print(f"Failed: {identity}: {error}", markup=False, highlight=False)
    console.print(f"{len(prompts) - len(failures)} of {len(prompts)} prompts answered: {answers.path}")
    return 1 if failures else 0
