"""The checks fail where they have to, and the command says so."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from selector.decoding.decoder import Decoder
from selector.decoding.policies import parse_policy
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.errors import UserError
from selector.losslessness.broken_decoders import AlwaysAccept, KeptRows, WrongPositions
from selector.losslessness.check_pair import check_pair, check_settings
from selector.losslessness.finding import BLIND, CAUGHT, DIVERGENT, IDENTICAL, OK, Finding, control, print_findings
from selector.losslessness.model_checks import check_passes, check_text, check_vocabulary
from selector.losslessness.sampled_distribution import BOUND, LEAST, Cells, check_distribution
from tests.support.tiny_models import disturbed, tiny_model

PROMPT, TREE = [5, 9, 33], (3, 1, 2)


@pytest.fixture
def pair() -> Any:
    target = tiny_model("Llama")
    return SimpleNamespace(
        target=HuggingFaceModel(target), draft=HuggingFaceModel(disturbed(target)), end_ids=(), decode=str
    )


def test_broken_passes(pair: Any) -> None:
    for broken, check in ((WrongPositions, "tree logits"), (KeptRows, "cache")):
        findings, _ = check_passes("target", pair.target, PROMPT, broken(pair.target))  # type: ignore[operator]
        assert DIVERGENT in [finding.verdict for finding in findings if finding.check == check]
    findings, noise = check_passes("target", pair.target, PROMPT)
    assert [finding.verdict for finding in findings] == [OK, OK]
    assert 0 < noise < 1e-4


def test_broken_texts(pair: Any) -> None:
    careless = AlwaysAccept()
    for verifier, expected in (("traversal", IDENTICAL), (careless, DIVERGENT)):
        decoder = Decoder(pair, verifier, TREE, (1.0, 1.0))
        assert check_text("", decoder, pair.target, PROMPT, 16, 1e-5).verdict == expected


def test_broken_laws(pair: Any) -> None:
    sampling, seeds = Sampling(0.9), range(200)
    cells = Cells(pair.target, PROMPT, sampling, 200)
    careless = AlwaysAccept()
    for verifier, expected in (("specinfer", OK), (careless, DIVERGENT)):
        assert check_distribution("", Decoder(pair, verifier, TREE), PROMPT, sampling, cells, seeds).verdict == expected


def test_cells_are_a_partition_by_the_exact_law(pair: Any) -> None:
    """Texts of the exact law pass at nearly every seed; their cells are the ones that were counted on."""
    sampling, count = Sampling(1.0), 400
    cells = Cells(pair.target, PROMPT, sampling, count)
    assert sum(cells.probs.values()) == pytest.approx(1)
    assert min(cells.probs.values()) * count >= LEAST
    chances = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        names = list(cells.probs)
        weights = torch.tensor([cells.probs[name] for name in names], dtype=torch.float64)
        drawn = torch.multinomial(weights, count, replacement=True, generator=generator).tolist()
        texts = [tuple(63 if token < 0 else token for token in names[index]) for index in drawn]
        known = [text for text in texts if len(text) == 3 and cells.cell_of(text) == text]
        assert len(known) <= count
        chances.append(_chance(cells, [names[index] for index in drawn]))
    assert min(chances) > BOUND
    assert max(chances) > 0.5


def _chance(cells: Cells, drawn: list[tuple[int, ...]]) -> float:
    original, cells.cell_of = cells.cell_of, lambda text: tuple(text)  # type: ignore[method-assign]
    try:
        return cells.p_value(drawn)
    finally:
        cells.cell_of = original  # type: ignore[method-assign]


def test_vocabulary(pair: Any) -> None:
    assert check_vocabulary(pair).verdict == OK
    pair.end_ids = (64,)
    assert check_vocabulary(pair).verdict == DIVERGENT


def test_verdicts_on_the_terminal() -> None:
    good, bad = Finding("cache", "target", OK, "0 [of] 1"), Finding("cache", "draft", DIVERGENT, "much")
    assert control("it", [bad]).verdict == CAUGHT
    assert control("it", [good]).verdict == BLIND
    for findings, words in (
        ([good], "as far as these checks see"),
        ([good, bad], "not lossless here: 1 of 2"),
        ([good, control("it", [good])], "shows nothing"),
    ):
        console = Console(file=io.StringIO(), width=150)
        print_findings(findings, console)
        assert words in console.file.getvalue()  # type: ignore[attr-defined]
        assert "0 [of] 1" in console.file.getvalue()  # type: ignore[attr-defined]


def test_settings() -> None:
    with pytest.raises(UserError, match="texts is 10: give 50 or more"):
        check_settings("traversal", "(3, 1, 2)", 48, 10)
    with pytest.raises(UserError, match="verifier"):
        check_settings("nonsense", "(3, 1, 2)", 48, 100)
    with pytest.raises(UserError, match="drafts beside a copied token"):
        check_settings("rbv", "match 2: copy 4 | (2, 0, 2), else (2, 0, 2)", 48, 100)


@pytest.mark.parametrize("policy", ["copy 4", "copy 2 + (2, 0, 1)", "copy 4 | (3, 1, 2)"])
def test_copies(pair: Any, policy: str) -> None:
    """Checks say how much was copied, and see a decoder that accepts whatever it copies."""
    pair.encode = None
    prompt = [*PROMPT, 7, *PROMPT]
    findings = check_pair(pair, [prompt], policy=parse_policy(policy), tokens=24, texts=100)
    assert all(finding.passed for finding in findings)
    assert {finding.detail.split()[-1] for finding in findings if finding.check == "greedy text"} == {"copied"}
    assert sum(finding.verdict == CAUGHT for finding in findings) == 4
