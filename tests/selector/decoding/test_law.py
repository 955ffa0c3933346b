"""The exact law of decoded text, through `Decoder.generate`, by enumerating every draw it makes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from selector.decoding import guard
from selector.decoding.decoder import Decoder
from selector.distributions import Sampling, warp
from selector.latency import LatencyProfile
from selector.losslessness.broken_decoders import AlwaysAccept
from selector.trees import verifier as verification
from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Expansion
from selector.trees.verifier import Verification
from selector.trees.verifiers import VERIFIERS, get_verifier
from tests.support.every_draw import Law, difference, every_run
from tests.support.table_model import TableModel

PROMPT = [1]


def target_law(target: TableModel, sampling: Sampling, count: int) -> Law:
    """Law of `count` tokens sampled from the target one by one."""
    law: Law = {(): 1.0}
    for _ in range(count):
        longer: Law = {}
        for text, probability in law.items():
            for token, chance in enumerate(warp(target.logits([*PROMPT, *text]), sampling).tolist()):
                if chance > 0:
                    longer[(*text, token)] = probability * chance
        law = longer
    return law


def models(size: int, support: list[int] | None = None) -> Any:
    target, draft = TableModel(size, 11), TableModel(size, 12, support=support)
    return SimpleNamespace(target=target, draft=draft, end_ids=(), decode=str)


CASES = [
    (2, Expansion(1, 0, 0), 3, Sampling()),
    (2, Expansion(1, 0, 2), 4, Sampling()),
    (2, Expansion(2, 1, 2), 3, Sampling(0.8)),
    (2, Expansion(2, 0, 2), 3, Sampling()),
    (2, Expansion(2, 1, 1), 3, Sampling(0.6)),
    (2, Expansion(3, 0, 1), 3, Sampling(1.3)),
    (3, Expansion(2, 0, 1), 3, Sampling(1.0, 0.8)),
    (3, Expansion(2, 1, 1), 3, Sampling(1.0, 1.0, 2)),
]


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_output_law_is_the_targets(verifier: str, case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    size, expansion, count, sampling = case
    pair = models(size)
    decoder = Decoder(pair, verifier, expansion)
    law = every_run(lambda: decoder.generate(PROMPT, count, sampling).tokens, monkeypatch)
    assert sum(law.values()) == pytest.approx(1)
    assert difference(law, target_law(pair.target, sampling, count)) < 1e-9


def test_trunk_with_branches_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = models(2)
    decoder = Decoder(pair, "traversal", Expansion(2, 1, 2))
    law = every_run(lambda: decoder.generate(PROMPT, 4, Sampling(0.8)).tokens, monkeypatch)
    assert difference(law, target_law(pair.target, Sampling(0.8), 4)) < 1e-9


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_law_with_a_reduced_head_a_warped_draft_and_a_changing_policy(
    verifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ByContext:
        def choose(self, root: Any) -> Expansion:
            root.features()
            return [Expansion(2, 0, 1), Expansion(1, 0, 0), Expansion(2, 1, 1)][root.context_length % 3]

    pair = models(3, support=[0, 2])
    decoder = Decoder(pair, verifier, ByContext(), draft_warp=(0.5, 1.0))
    law = every_run(lambda: decoder.generate(PROMPT, 3, Sampling(1.0)).tokens, monkeypatch)
    assert difference(law, target_law(pair.target, Sampling(1.0), 3)) < 1e-9


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_law_with_a_guard(verifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It judges every step, so that steps are held back after some texts and not after others."""
    monkeypatch.setattr(guard, "TRIAL", 1)
    monkeypatch.setattr(guard, "SURE", 0)  # one lost step is enough
    monkeypatch.setattr(guard, "PAUSES", (1, 2))
    profile = LatencyProfile((1,), (1,), ((1.0,),), ((0.2,),), (0.0,), (1.0,))
    pair = models(2)
    decoder = Decoder(pair, verifier, Expansion(2, 0, 1), guard=guard.Guard(profile))
    held_back = set()

    def run() -> list[int]:
        generation = decoder.generate(PROMPT, 5, Sampling(0.8))
        held_back.add(generation.stats.guarded)
        return generation.tokens

    law = every_run(run, monkeypatch)
    assert len(held_back) > 1
    assert difference(law, target_law(pair.target, Sampling(0.8), 5)) < 1e-9


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_sampled_frequencies(verifier: str) -> None:
    """The generator's own draws: chi-square over all texts of three tokens."""
    pair = models(3)
    decoder = Decoder(pair, verifier, Expansion(2, 1, 1))
    runs = 800
    counts = Counter(tuple(decoder.generate(PROMPT, 3, Sampling(), seed).tokens) for seed in range(runs))
    expected = {text: runs * chance for text, chance in target_law(pair.target, Sampling(), 3).items()}
    large = [text for text, number in expected.items() if number >= 5]
    rest = sum(number for text, number in expected.items() if number < 5)
    statistic = sum((counts[text] - expected[text]) ** 2 / expected[text] for text in large)
    statistic += (runs - sum(counts[text] for text in large) - rest) ** 2 / max(rest, 1.0)
    freedom = len(large)
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


class WrongBonusRow:
    """Draws the bonus token from the target's law at the accepted node's parent."""

    name = "mutant"

    def verify(self, tree: DraftTree, target_probs: Tensor, generator: Any) -> Verification:
        node, _ = get_verifier("nss").verify(tree, target_probs, generator)
        parent = max(tree.topology.parents[node], 0)
        return Verification(node, int(verification.draw(target_probs[parent][None], generator)))


class UnwarpedDraftLaw:
    """Verifies against another draft law than the tokens were drawn from."""

    name = "mutant"

    def verify(self, tree: DraftTree, target_probs: Tensor, generator: Any) -> Verification:
        flatter = tree.draft_probs.sqrt()
        flatter = flatter / flatter.sum(-1, keepdim=True)
        return get_verifier("specinfer").verify(replace(tree, draft_probs=flatter), target_probs, generator)


@pytest.mark.parametrize(
    "mutant", [WrongBonusRow(), AlwaysAccept(), UnwarpedDraftLaw()], ids=lambda m: type(m).__name__
)
def test_mutants_have_another_law(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = models(2)
    decoder = Decoder(pair, mutant, Expansion(2, 0, 2))
    law = every_run(lambda: decoder.generate(PROMPT, 3, Sampling()).tokens, monkeypatch)
    assert difference(law, target_law(pair.target, Sampling(), 3)) > 1e-3


def test_kept_rejected_row_has_another_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache keeps the first rows of a pass instead of the accepted path."""

    class Careless(TableModel):
        def keep(self, path: Any) -> None:
            self.committed += [token for token, _ in self.pending[: len(path)]]
            self.pending = []

    pair = models(2)
    careless = Careless(2, 11)
    decoder = Decoder(SimpleNamespace(**{**vars(pair), "target": careless}), "nss", Expansion(2, 0, 2))
    law = every_run(lambda: decoder.generate(PROMPT, 4, Sampling()).tokens, monkeypatch)
    assert difference(law, target_law(pair.target, Sampling(), 4)) > 1e-3
