"""`ddte verify`: a pair on this machine, or worked cases of the verifiers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser

from selector.errors import UserError

if TYPE_CHECKING:
    from selector.losslessness.worked_cases import CaseResult


def verify_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--cases", type=Path, default=None, help="worked cases in the examples' JSON format, instead of --config"
    )
    parser.add_argument("--verifier", type=str, default="traversal", help="verifier of the decoder that is checked")
    parser.add_argument("--tokens", type=int, default=48, help="length of each greedy text")
    parser.add_argument("--texts", type=int, default=300, help="texts that are sampled for the check of the law")


def verify(arguments: Any) -> int:
    """Check the pair of `config`, or the worked cases of a file; exit code 1 if one check fails."""
    if (arguments.cases is None) == (not arguments.config):
        given = "both" if arguments.config else "neither"
        raise UserError(f"cases and config are {given} given: give one, `--cases FILE` or `--config FILE`.")
    return verify_cases(arguments.cases) if arguments.cases else verify_config(arguments)


def verify_cases(cases: Path) -> int:
    """The worked cases of a file."""
    from selector.losslessness.worked_cases import check_cases

    failed = 0
    for result in check_cases(cases):
        failed += not result.ok
        verdict = "ok" if result.ok else "MISS"
        print(
            f"{verdict:4}  {result.case:32}  {result.algorithm:18}  largest difference {result.difference:.2e}"
            f"  computed {shown(result, result.computed)}  expected {shown(result, result.expected)}"
        )
    print(f"{failed} misses", file=sys.stderr)
    return 1 if failed else 0


def verify_config(arguments: Any) -> int:
    """Losslessness of decoding with the pair, on this machine."""
    from rich.console import Console

    from selector.engine.huggingface import load_pair
    from selector.losslessness.table import print_findings
    from selector.losslessness.verify import PROMPTS, check_settings, verify_pair

    check_settings(arguments.verifier, arguments.tokens, arguments.texts)
    with Console(stderr=True).status("loading the models") as status:
        pair = load_pair(arguments.pair)
        prompts = [pair.encode(prompt) for prompt in PROMPTS]
        findings = verify_pair(
            pair,
            prompts,
            verifier=arguments.verifier,
            tokens=arguments.tokens,
            texts=arguments.texts,
            say=status.update,
        )
    print_findings(findings)
    return 0 if all(finding.passed for finding in findings) else 1


def shown(result: CaseResult, numbers: Sequence[float]) -> str:
    """Numbers of a case for one line: all of them, or of many the one that is furthest off."""
    if len(numbers) > 6:
        off = [abs(own - other) for own, other in zip(result.computed, result.expected, strict=True)]
        place = off.index(max(off))
        return f"{numbers[place]:.9f} (number {place + 1} of {len(numbers)})"
    return " ".join(f"{number:.9f}" for number in numbers)
