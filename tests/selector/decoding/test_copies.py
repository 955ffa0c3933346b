"""Decoding with copies: the law by enumeration, greedy text, the draft's cache, statistics, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from selector.decoding import sequence
from selector.decoding.decoder import Decoder, clip
from selector.decoding.policies import MatchRule, fixed_policy, parse_policy
from selector.distributions import Sampling, warp
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.early_exit import build_early_exit
from selector.errors import UserError
from selector.trees.expansion import Action, Expansion, parse_action
from selector.trees.verifiers import BLOCKS, VERIFIERS, get_verifier
from tests.selector.decoding.test_law import models
from tests.selector.decoding.test_reading_draft import pair_of as reading_pair
from tests.selector.decoding.test_sequence import SAMPLING, fresh_features
from tests.support.copy_mutants import CopyLast, SkipsEqualDrafts
from tests.support.every_draw import Law, difference, every_run
from tests.support.table_model import TableModel

PATHS = [verifier.name for verifier in BLOCKS]
NODES = [name for name in VERIFIERS if name not in PATHS]
COPIES = [  # vocabulary, policy, tokens, sampling
    (3, "copy 3", 3, Sampling(0.7)),
    (2, "copy 1 + (2, 0, 1)", 3, Sampling(0.8)),
    (2, "copy 1 + (2, 1, 1)", 3, Sampling()),
    (2, "match 2: copy 2 + (1, 0, 1), else (1, 0, 1)", 4, Sampling(0.8)),
]
MIXED = [
    (2, "copy 1 | (2, 0, 1)", 3, Sampling()),
    (2, "copy 3 | (2, 0, 2)", 3, Sampling(0.8)),
    (2, "copy 2 | (2, 1, 1)", 3, Sampling(1.3)),
    (3, "copy 2 | (2, 0, 1)", 2, Sampling(1.0, 0.95)),
    (2, "match 2: copy 2 | (1, 0, 1), else copy 1 + (1, 0, 1)", 4, Sampling(0.6)),
]
CASES = [(name, case) for name in VERIFIERS for case in COPIES] + [(name, case) for name in NODES for case in MIXED]
REPEATING = [0, 1, 0, 1, 1, 0]
TEXT = [5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6]
ACTIONS = [
    "copy 4", "(2, 0, 2)", "copy 3 | (2, 1, 2)", "copy 2 + (2, 0, 2)", "copy 16", "(1, 0, 0)", "copy 1 + (1, 0, 3)",
]  # fmt: skip


def law_of(target: TableModel, prompt: Sequence[int], sampling: Sampling, count: int) -> Law:
    """Law of `count` tokens sampled from the target one by one."""
    law: Law = {(): 1.0}
    for _ in range(count):
        law = {
            (*text, token): probability * chance
            for text, probability in law.items()
            for token, chance in enumerate(warp(target.logits([*prompt, *text]), sampling).tolist())
            if chance > 0
        }
    return law


@pytest.mark.parametrize(("verifier", "case"), CASES, ids=str)
def test_output_law_is_the_targets(verifier: str, case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    size, policy, count, sampling = case
    pair, copied = models(size), set()
    decoder = Decoder(pair, verifier, parse_policy(policy))

    def run() -> list[int]:
        generation = decoder.generate(REPEATING, count, sampling)
        copied.add(generation.stats.accepted_copies)
        return generation.tokens

    law = every_run(run, monkeypatch)
    assert difference(law, law_of(pair.target, REPEATING, sampling, count)) < 1e-9
    assert max(copied) > 0


class Turns:
    """Takes actions in turn, by the length of the context; looks at the features of every other root."""

    def __init__(self, actions: Sequence[str], every: int = 2) -> None:
        self.actions, self.every = [parse_action(text) for text in actions], every
        self.seen: dict[int, Any] = {}

    def choose(self, root: Any) -> Action:
        if root.context_length % self.every == 0:
            self.seen[root.context_length] = root.features()
        return self.actions[root.context_length % len(self.actions)]


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_law_with_a_reduced_head_a_warped_draft_and_a_changing_policy(
    verifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied tokens may lie outside the draft's support."""
    mixed = "copy 1 + (2, 0, 1)" if verifier in PATHS else "copy 2 | (2, 0, 1)"
    pair = models(3, support=[0, 2])
    decoder = Decoder(pair, verifier, Turns([mixed, "copy 2", "(2, 1, 1)"]), draft_warp=(0.5, 1.0))
    law = every_run(lambda: decoder.generate([1, 2, 1, 0, 1], 3, Sampling()).tokens, monkeypatch)
    assert difference(law, law_of(pair.target, [1, 2, 1, 0, 1], Sampling(), 3)) < 1e-9


@pytest.mark.parametrize("mutant", [SkipsEqualDrafts, CopyLast])
@pytest.mark.parametrize("name", ["traversal", "specinfer"])
def test_mutants_change_the_law(name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = models(3)
    decoder = Decoder(pair, mutant(get_verifier(name)), parse_action("copy 1 | (2, 0, 1)"))
    law = every_run(lambda: decoder.generate(REPEATING, 2, Sampling()).tokens, monkeypatch)
    assert difference(law, law_of(pair.target, REPEATING, Sampling(), 2)) > 1e-3


def test_a_copy_that_depends_on_the_draws_changes_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant copies what it has just drafted."""
    original, pair = sequence.beside, models(3)
    monkeypatch.setattr(sequence, "beside", lambda tree, chain: original(tree, [int(tree.tokens[1])]))
    decoder = Decoder(pair, "specinfer", parse_action("copy 1 | (1, 0, 1)"))
    law = every_run(lambda: decoder.generate(REPEATING, 3, Sampling()).tokens, monkeypatch)
    assert difference(law, law_of(pair.target, REPEATING, Sampling(), 3)) > 1e-3


@pytest.mark.parametrize("action", ["copy 1 + (1, 0, 1)", "copy 2 + (2, 0, 1)", "copy 2 | (2, 0, 1)"])
def test_law_with_a_draft_that_reads_the_target(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = reading_pair(vocab=2)
    decoder, plain = (Decoder(pair, "traversal", parse_action(text)) for text in (action, "(1, 0, 0)"))
    laws = [
        every_run(lambda decoder=decoder: decoder.generate([1, 0, 1], 3, Sampling(0.8)).tokens, monkeypatch)  # type: ignore[misc]
        for decoder in (decoder, plain)
    ]
    assert difference(*laws) < 1e-5


def pair_of(target: HuggingFaceModel, draft: HuggingFaceModel) -> Any:
    return SimpleNamespace(target=target, draft=draft, end_ids=(), decode=str)


@pytest.mark.parametrize("policy", [*ACTIONS, "match 3: copy 8 | (2, 0, 2), else (2, 0, 2)"])
def test_greedy_text_is_the_targets(target: HuggingFaceModel, draft: HuggingFaceModel, policy: str) -> None:
    pair = pair_of(target, draft)
    plain = Decoder(pair, "traversal", (1, 0, 0)).generate(TEXT, 60).tokens
    for verifier in ("traversal", "rbv" if "|" not in policy else "specinfer"):
        generation = Decoder(pair, verifier, parse_policy(policy)).generate(TEXT, 60)
        assert generation.tokens == plain
        stats = generation.stats
        assert sum(stats.sources.values()) == stats.tokens == 60
        assert stats.sources["target"] == stats.steps
        assert stats.accepted_copies <= stats.copied
        assert stats.accepted - stats.accepted_copies <= stats.drafted
        if policy.startswith("copy"):
            assert stats.accepted_copies > 3


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("every", [1, 3])
def test_replay(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM, reduced: bool, every: int) -> None:
    """Features after copied steps are those of fresh passes over the text, however long the draft lagged."""
    support = torch.arange(0, 64, 2) if reduced else None
    draft = build_early_exit(target_llama, [0], support) if reduced else draft_llama
    pair, sampling = pair_of(HuggingFaceModel(target_llama), HuggingFaceModel(draft, support)), SAMPLING
    seen = copied = 0
    for seed, start in enumerate([TEXT[:2], TEXT]):
        policy = Turns(ACTIONS, every)
        generation = Decoder(pair, "traversal", policy).generate(start, 24, sampling, seed)
        text = start + generation.tokens
        copied += generation.stats.accepted_copies
        for length, features in policy.seen.items():
            expected = fresh_features(target_llama, draft, support, text[: length + 1], len(start))
            for name in ("target_hidden", "draft_hidden_prev", "draft_hidden_root", "scalars"):
                torch.testing.assert_close(getattr(features, name), getattr(expected, name), atol=2e-3, rtol=2e-3)
            seen += 1
    assert seen > 4
    assert copied > 0


def test_the_draft_lags_behind_copies_and_catches_up_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []

    class Watched(TableModel):
        def extend(self, tokens: Any, parents: Any, last_rows: int = 0) -> Any:
            passes.append(len(tokens))
            return super().extend(tokens, parents, last_rows)

    script, lags = ["copy 2", "copy 2", "copy 2 + (1, 0, 2)", "copy 1"], []

    class Scripted:
        def choose(self, root: Any) -> Action:
            lags.append(root.lag)
            return parse_action(script[len(lags) - 1])

    pair = SimpleNamespace(target=TableModel(2, 11), draft=Watched(2, 12), end_ids=(), decode=str)
    steps = Decoder(pair, "traversal", Scripted()).steps(REPEATING, Counted(30), Sampling(), 3)
    done = [len(next(steps).tokens) for _ in script]
    assert lags[:3] == [5, 5 + done[0], 5 + done[0] + done[1]]
    assert passes == [1 + lags[2] + 2, 1], "what it lacks and the copied tokens, then the level below"


def test_texts_beside_each_other_copy_each_from_its_own() -> None:
    pair = SimpleNamespace(target=TableModel(3, 11), draft=TableModel(3, 12), end_ids=(), decode=str)
    decoder = Decoder(pair, "traversal", parse_policy("match 1: copy 3 | (2, 0, 1), else copy 2 + (2, 0, 1)"))

    def start(prompt: list[int]) -> Any:
        return islice(decoder.steps(prompt, Counted(100), Sampling(0.8), 3), 8)

    prompts = [REPEATING, [2, 1, 2, 0, 2, 1]]
    alone = [[list(step.tokens) for step in start(prompt)] for prompt in prompts]
    together = [[list(step.tokens) for step in steps] for steps in zip(*map(start, prompts), strict=True)]
    assert together == list(map(list, zip(*alone, strict=True)))


class Counted:
    """An ending after a number of tokens."""

    def __init__(self, count: int) -> None:
        self.tokens: list[int] = []
        self.finish: str | None = None
        self.remaining = count

    def accept(self, committed: Sequence[int]) -> list[int]:
        return list(committed)


def test_copies_are_cut_to_the_tokens_that_are_left() -> None:
    cases = [
        ("copy 8", 3, "copy 3"), ("copy 8", 0, "(1, 0, 0)"), ("copy 2 + (2, 1, 3)", 4, "copy 2 + (2, 1, 1)"),
        ("copy 4 + (2, 1, 3)", 4, "copy 4"), ("copy 4 | (2, 1, 3)", 3, "copy 3 | (2, 1, 2)"),
        ("copy 4 | (2, 0, 1)", 0, "(1, 0, 0)"),
    ]  # fmt: skip
    for action, depth, cut in cases:
        assert str(clip(parse_action(action), depth)) == cut


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_exact_number_of_tokens(count: int) -> None:
    pair = models(2)
    for policy in ("copy 16", "copy 5 | (2, 0, 2)", "copy 3 + (2, 0, 2)"):
        assert len(Decoder(pair, "traversal", parse_policy(policy)).generate(REPEATING, count).tokens) == count


def test_stop_strings_end_tokens_and_streams(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    """A copy may run past an end; the text does not."""
    pair = pair_of(target, draft)
    pair.decode = lambda tokens: "".join(chr(97 + token % 26) for token in tokens)
    plain = Decoder(pair, "traversal", (1, 0, 0)).generate(TEXT, 40)
    for policy in ("copy 8", "copy 8 | (2, 0, 2)"):
        decoder = Decoder(pair, "traversal", parse_policy(policy))
        for place in (3, 11, 26):
            stop = plain.text[place : place + 3]
            generation = decoder.generate(TEXT, 40, stop_strings=stop)
            assert generation.text == plain.text[: plain.text.index(stop) + 3]
            steps = list(decoder.stream(TEXT, max_new_tokens=40, stop_strings=stop))
            assert "".join(step.text for step in steps) == generation.text
            end = plain.tokens[place]
            found = decoder.generate(TEXT, 40, end_ids=[end])
            assert found.tokens == plain.tokens[: plain.tokens.index(end) + 1]
            assert found.stats.tokens == len(found.tokens)


def test_without_a_match_the_drafted_part_is_left() -> None:
    pair = models(2)
    for policy in ("copy 4", "copy 4 | (2, 0, 1)", "copy 1 + (2, 0, 1)"):
        drafted = "(2, 0, 1)" if "(" in policy else "(1, 0, 0)"
        first = next(Decoder(pair, "nss", parse_policy(policy)).steps([0, 0, 1], Counted(9), Sampling(), 0))
        assert str(first.expansion) == drafted
        assert list(first.stats.actions) == [parse_action(drafted)]
        assert first.stats.copied == 0


def test_policies_by_their_text() -> None:
    rule = fixed_policy("match 2: copy 8 | (2, 0, 2), else (3, 1, 2)")
    assert isinstance(rule, MatchRule)
    assert str(rule) == "match 2: copy 8 | (2, 0, 2), else (3, 1, 2)"
    assert str(parse_policy("copy 8")) == "the static action copy 8"
    roots: list[Any] = [SimpleNamespace(match=match and SimpleNamespace(length=match)) for match in (None, 1, 2, 3)]
    assert [str(rule.choose(root)) for root in roots] == 2 * ["(3, 1, 2)"] + 2 * ["copy 8 | (2, 0, 2)"]
    for wrong in ("match 0: copy 8, else (2, 0, 2)", "match 2: copy 8", "match 2: copy 20, else (2, 0, 2)", "copy"):
        with pytest.raises(UserError, match=r"decode\.policy is .* a rule as match 2: copy 8, else \(2, 0, 2\)"):
            fixed_policy(wrong)


@pytest.mark.parametrize("verifier", PATHS)
def test_path_verifiers_refuse_copies_beside_drafts_at_the_start(verifier: str) -> None:
    for policy in ("copy 4 | (2, 0, 1)", "match 9: copy 4 | (2, 0, 1), else (2, 0, 1)"):
        with pytest.raises(UserError, match="drafts beside a copied token"):
            Decoder(models(2), verifier, parse_policy(policy))
    Decoder(models(2), verifier, parse_policy("copy 4 + (2, 0, 1)"))


def test_actions_that_are_none_are_refused() -> None:
    for length in (0, 17, True):
        action: Any = parse_action("copy 4 | (2, 0, 1)")._replace(length=length)
        with pytest.raises(UserError, match="length of a copy"):
            Decoder(models(2), "nss", action)
    wide: Any = parse_action("copy 4")._replace(drafted=Expansion(17, 0, 1))
    with pytest.raises(UserError, match="for verifier 'specinfer'"):
        Decoder(models(2), "specinfer", wide)


def test_a_decoder_reports_each_source(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    stats = Decoder(pair_of(target, draft), "traversal", parse_action("copy 4 | (2, 0, 2)")).generate(TEXT, 40).stats
    found = stats.to_dict()
    assert found["sources"] == stats.sources
    assert found["actions"].keys() <= {"copy 4 | (2, 0, 2)", "(2, 0, 2)", "copy 3 | (2, 0, 2)", "copy 2 | (2, 0, 2)",
                                       "copy 1 | (1, 0, 1)", "(1, 0, 0)"}  # fmt: skip
