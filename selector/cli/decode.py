"""`ddte decode`: one prompt to the terminal, or many to a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from selector.config import DecodeConfig, PairConfig
from selector.errors import UserError
from selector.shipped import SELECTOR


def decode(
    pair: PairConfig,
    decode: DecodeConfig,
    checkpoint: Path | None = None,
    prompt: str | None = None,
    prompts: str | None = None,
    out: Path | None = None,
    profile: Literal["machine", "checkpoint"] | Path = "machine",
) -> int:
    """Decode one prompt with a checkpoint, streaming text and ending with statistics; or many, to a file.

    Args:
        checkpoint: a checkpoint folder of `ddte export`, or user/name of the hub (default: the shipped one of the
            embedded pair).
        prompt: the user's message.
        prompts: JSONL file of prompts, or `-` for lines of standard input; needs OUT.
        out: JSONL file of answers; an interrupted one goes on.
        profile: pass times that decide which trees pay: of this `machine`, measured once and kept in the user's cache,
            of the `checkpoint`, or a file of `ddte profile`.
    """
    from selector.cli import answer
    from selector.decoding.policies import fixed_policy

    fixed_policy(decode.policy)
    if (prompt is None) == (prompts is None):
        raise UserError("prompt and prompts: give one of the two, a text or a file of prompts.")
    if prompts is not None:
        return _decode_prompts(prompts, out, checkpoint or _shipped(pair), profile, pair, decode)
    assert prompt is not None
    if out is not None:
        raise UserError(f"out is {str(out)!r}: it is for --prompts; the answer to one prompt is printed.")
    if not prompt.strip():
        raise UserError("prompt is empty: give the text to answer.")
    answer.stream(answer.build_decoder(checkpoint or _shipped(pair), profile, pair, decode), prompt, decode)
    return 0


def _shipped(pair: PairConfig) -> Path:
    """The shipped selector, named on standard error. Raises UserError for another pair than it was trained for."""
    if (pair.target, pair.draft) != (PairConfig.target, PairConfig.draft):
        raise UserError(
            "checkpoint is left out: give a folder of `ddte export` or user/name; shipped ones are of another pair."
        )
    print(f"No checkpoint given: decoding with the shipped selector, --checkpoint {SELECTOR}", file=sys.stderr)
    return Path(SELECTOR)


def _decode_prompts(
    prompts: str,
    out: Path | None,
    checkpoint: Path,
    profile: Literal["machine", "checkpoint"] | Path,
    pair: PairConfig,
    decode: DecodeConfig,
) -> int:
    """Answer all `prompts` into the JSONL file `out`; exit code 1 when one of them failed."""
    from selector.artifacts.claims import check_file
    from selector.artifacts.writing import as_json
    from selector.cli import answer
    from selector.cli.batch_decode import Answers, decode_all, read_prompts

    if out is None:
        raise UserError("out is left out: give the JSONL file for the answers to prompts.")
    check_file("out", out)
    own = {"pair": as_json(pair), "checkpoint": str(checkpoint), "profile": str(profile)}
    answers, read = Answers(out, as_json(decode) | own), read_prompts(prompts)
    answers.left(read)
    return decode_all(answer.build_decoder(checkpoint, profile, pair, decode), read, answers, decode)
