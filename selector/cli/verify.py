"""`ddte verify`: a pair on this machine, or worked cases of the verifiers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from selector.config import PairConfig
from selector.errors import UserError


def verify(
    pair: PairConfig,
    config_file: object,
    cases: Path | None = None,
    verifier: str = "traversal",
    policy: str = "(3, 1, 2)",
    tokens: int = 48,
    texts: int = 300,
) -> int:
    """Check that decoding with a pair is lossless here, or verification algorithms against worked cases.

    The exit code is 1 if one check fails.

    Args:
        cases: worked cases in the examples' JSON format, instead of --config.
        verifier: verifier of the decoder that is checked.
        policy: its tree of every step, (K, L1, L2), or a copy or a rule, as decode.policy takes.
        tokens: length of each greedy text.
        texts: texts that are sampled for the check of the distribution.
    """
    if (cases is None) == (not config_file):
        given = "both" if config_file else "neither"
        raise UserError(f"cases and config are {given} given: give one, `--cases FILE` or `--config FILE`.")
    return verify_cases(cases) if cases else verify_config(pair, verifier, policy, tokens, texts)


def verify_cases(cases: Path) -> int:
    """The worked cases of a file."""
    from selector.losslessness.worked_cases import check_cases

    failed = 0
    for result in check_cases(cases):
        failed += not result.ok
        off = [abs(own - other) for own, other in zip(result.computed, result.expected, strict=True)]
        verdict = "ok" if result.ok else "MISS"
        print(
            f"{verdict:4}  {result.case:32}  {result.algorithm:18}  largest difference {result.difference:.2e}"
            f"  computed {shown(result.computed, off)}  expected {shown(result.expected, off)}"
        )
    print(f"{failed} misses", file=sys.stderr)
    return 1 if failed else 0


def verify_config(config: PairConfig, verifier: str, policy: str, tokens: int, texts: int) -> int:
    """Losslessness of decoding with the pair, on this machine."""
    from rich.console import Console

    from selector.engine.huggingface import load_pair
    from selector.losslessness.check_pair import PROMPTS, check_pair, check_settings
    from selector.losslessness.finding import print_findings

    chosen = check_settings(verifier, policy, tokens, texts)
    with Console(stderr=True).status("loading the models") as status:
        pair = load_pair(config)
        prompts = [pair.encode(prompt) for prompt in PROMPTS]
        findings = check_pair(
            pair, prompts, verifier=verifier, policy=chosen, tokens=tokens, texts=texts, say=status.update
        )
    print_findings(findings)
    return 0 if all(finding.passed for finding in findings) else 1


def shown(numbers: Sequence[float], differences: Sequence[float]) -> str:
    """Numbers of a case for one line: all of them, or of many the one that is furthest off."""
    if len(numbers) > 6:
        place = differences.index(max(differences))
        return f"{numbers[place]:.9f} (number {place + 1} of {len(numbers)})"
    return " ".join(f"{number:.9f}" for number in numbers)
