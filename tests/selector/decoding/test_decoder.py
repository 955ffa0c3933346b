"""Decoding against transformers' own `generate`, and where texts end."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from selector.decoding.decoder import Decoder, clip
from selector.decoding.policies import FixedPolicy, SelectorPolicy
from selector.decoding.sequence import SpeculativeSequence
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel, PendingRows
from selector.errors import UserError
from selector.trees.expansion import Expansion
from selector.trees.verifiers import VERIFIERS
from tests.support.profiles import make_profile
from tests.support.scripted_selectors import make_checkpoint
from tests.support.table_model import TableModel

EXPANSIONS = [Expansion(*numbers) for numbers in [(1, 0, 0), (1, 0, 4), (3, 0, 3), (4, 2, 3), (2, 1, 2), (8, 3, 1)]]


def letters(tokens: list[int]) -> str:
    return "".join(chr(97 + token % 26) for token in tokens)


def pair_of(target: Any, draft: Any, end_ids: tuple[int, ...] = ()) -> Any:
    return SimpleNamespace(target=target, draft=draft, end_ids=end_ids, decode=letters, dtype=torch.float32)


def plain_greedy(model: LlamaForCausalLM, prompt: list[int], count: int, end_id: int | None = None) -> list[int]:
    output = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, eos_token_id=end_id)
    return output[0, len(prompt) :].tolist()


def prompts(lengths: list[int]) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, 64, (length,), generator=generator).tolist() for length in lengths]


@cache
def greedy_references(model: LlamaForCausalLM) -> list[tuple[list[int], list[int]]]:
    return [(prompt, plain_greedy(model, prompt, 32)) for prompt in prompts([1, 9])]


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("expansion", EXPANSIONS, ids=str)
def test_greedy_equals_generate(
    target: HuggingFaceModel, draft: HuggingFaceModel, verifier: str, expansion: Expansion
) -> None:
    decoder = Decoder(pair_of(target, draft), verifier, expansion)
    for prompt, reference in greedy_references(target.model):
        generation = decoder.generate(prompt, 32)
        assert generation.tokens == reference
        assert generation.finish == "length"
        assert generation.stats.tokens == 32


@pytest.mark.parametrize("length", [62, 63, 64, 65, 126, 127, 128, 129])
def test_cache_lengths(
    target: HuggingFaceModel, draft: HuggingFaceModel, length: int, sequences: list[SpeculativeSequence]
) -> None:
    (prompt,) = prompts([length])
    decoder = Decoder(pair_of(target, draft), "specinfer", Expansion(3, 1, 2))
    committed = list(prompt)
    for step in decoder.stream(prompt, max_new_tokens=12):
        committed += step.tokens
        if step.finish is None:
            assert sequences[-1].target.length == len(committed) - 1
            assert sequences[-1].draft.length in (len(committed) - 1, len(committed) - 2)
    assert committed[length:] == plain_greedy(target.model, prompt, 12)


def test_sampled_decoding_is_reproducible(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    decoder = Decoder(pair_of(target, draft), "traversal", Expansion(3, 1, 2))
    texts = [decoder.generate([5, 6], 30, Sampling(1.0, 0.95, 20), seed).tokens for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8])
def test_exact_number_of_tokens(target: HuggingFaceModel, draft: HuggingFaceModel, count: int) -> None:
    decoder = Decoder(pair_of(target, draft), "specinfer", Expansion(2, 2, 4))
    generation = decoder.generate([3, 4], count)
    assert generation.tokens == plain_greedy(target.model, [3, 4], count)


@pytest.mark.parametrize("position", [0, 1, 2, 5, 11])
def test_stops_at_the_end_token_inside_an_accepted_path(target: HuggingFaceModel, position: int) -> None:
    """The draft is the target itself, so that whole paths are accepted and the end token lies within one."""
    prompt = [3, 4]
    reference = plain_greedy(target.model, prompt, 24)
    end_id = reference[position]
    decoder = Decoder(pair_of(target, HuggingFaceModel(target.model), (end_id,)), "specinfer", Expansion(1, 0, 7))
    generation = decoder.generate(prompt, 24)
    assert generation.tokens == reference[: reference.index(end_id) + 1]
    assert generation.finish == "end"
    assert generation.stats.tokens == len(generation.tokens)
    assert decoder.generate(prompt, 24, end_ids=()).tokens == reference


def test_stop_strings_and_streaming(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    reference = letters(plain_greedy(target.model, [3, 4], 30))
    stop = reference[10:13]
    decoder = Decoder(pair_of(target, draft), "specinfer", Expansion(2, 1, 3))
    generation = decoder.generate([3, 4], 30, stop_strings=["no such", stop])
    assert generation.text == reference[: reference.index(stop) + 3]
    assert generation.finish == "stop"
    steps = list(decoder.stream([3, 4], max_new_tokens=30, stop_strings=stop))
    assert "".join(step.text for step in steps) == generation.text
    assert [step.finish for step in steps[:-1]] == [None] * (len(steps) - 1)
    assert sum(steps[-1].stats.actions.values()) == len(steps)
    pieces = [step.text for step in decoder.stream([3, 4], max_new_tokens=30)]
    assert "".join(pieces) == reference


def test_statistics_add_up(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    stats = Decoder(pair_of(target, draft), "nss", Expansion(2, 1, 3)).generate([3, 4], 50).stats
    assert stats.tokens == 50 == stats.steps + stats.accepted
    assert stats.block_efficiency == pytest.approx(50 / stats.steps)
    assert all(seconds >= 0 for seconds in stats.seconds.values())
    assert stats.seconds["draft"] > 0 < stats.seconds["target"]
    assert 0 < stats.overhead_share < 1
    assert stats.tokens_per_second == pytest.approx(50 / sum(stats.seconds.values()))
    assert sum(stats.to_dict()["actions"].values()) == stats.steps


def test_bad_input_is_refused(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    decoder = Decoder(pair_of(target, draft), "nss", Expansion(1, 0, 2))
    with pytest.raises(UserError, match="at least one token"):
        decoder.generate([])
    with pytest.raises(UserError, match="holds token 64: the vocabulary has tokens 0 to 63"):
        decoder.stream([1, 64])
    with pytest.raises(UserError, match="max_new_tokens is 0"):
        decoder.stream([1], max_new_tokens=0)
    with pytest.raises(UserError, match="verifier is 'best'"):
        Decoder(pair_of(target, draft), "best", Expansion(1, 0, 2))


def test_clip_keeps_the_trunk_first() -> None:
    assert clip(Expansion(4, 3, 5), 6) == Expansion(4, 3, 3)
    assert clip(Expansion(4, 3, 5), 3) == Expansion(1, 0, 3)
    assert clip(Expansion(4, 3, 5), 0) == Expansion(1, 0, 0)


def test_a_policy_may_change_its_mind(target: HuggingFaceModel, draft: HuggingFaceModel) -> None:
    """Steps without drafting leave the draft behind; it catches up."""

    class Cycle:
        def __init__(self) -> None:
            self.calls = 0

        def choose(self, root: Any) -> Expansion:
            self.calls += 1
            if self.calls % 3 == 0:
                root.features()
            return EXPANSIONS[[0, 0, 0, 2, 0, 3, 1][self.calls % 7]]

    decoder = Decoder(pair_of(target, draft), "traversal", Cycle())
    assert decoder.generate([7], 60).tokens == plain_greedy(target.model, [7], 60)


def wrong_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PendingRows.append

    def by_index(self: PendingRows, parents: Any) -> Any:
        start = len(self.depths)
        _, visible = original(self, parents)
        return list(range(start, len(self.depths))), visible

    monkeypatch.setattr(PendingRows, "append", by_index)


def kept_rejected_row(monkeypatch: pytest.MonkeyPatch) -> None:
    original = HuggingFaceModel.keep
    monkeypatch.setattr(HuggingFaceModel, "keep", lambda self, path: original(self, range(len(path))))


@pytest.mark.parametrize("mutant", [wrong_positions, kept_rejected_row])
def test_mutants_change_greedy_text(
    target: HuggingFaceModel,
    draft: HuggingFaceModel,
    monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    decoder = Decoder(pair_of(target, draft), "specinfer", Expansion(4, 0, 3))
    # At temperature 0 all branches are equal, so the draft samples its branches here.
    decoder.draft_warp = (1.0, 1.0)
    expected = [plain_greedy(target.model, prompt, 40) for prompt in prompts([2, 9, 17])]
    assert [decoder.generate(prompt, 40).tokens for prompt in prompts([2, 9, 17])] == expected
    mutant(monkeypatch)
    assert [decoder.generate(prompt, 40).tokens for prompt in prompts([2, 9, 17])] != expected


def test_table_models_decode() -> None:
    decoder = Decoder(pair_of(TableModel(4, 0), TableModel(4, 1, support=[0, 2])), "specinfer", Expansion(2, 1, 1))
    generation = decoder.generate([1], 9, Sampling(1.0))
    assert len(generation.tokens) == 9
    assert generation.stats.to_dict()["policy"] == "the static tree (2, 1, 1)"


@pytest.mark.parametrize(
    ("ratio", "head", "policy"),
    [(1.0, "auto", SelectorPolicy), (0.999, "auto", FixedPolicy), (0.9, "regressor", SelectorPolicy)],
)
def test_a_selector_that_did_not_pay_gives_way_to_its_static_tree(ratio: float, head: Any, policy: type) -> None:
    checkpoint = make_checkpoint(metrics={"validation_ratio_to_static": ratio}, best_static=(2, 1, 1))
    models = [SimpleNamespace(fingerprint=name, device=torch.device("cpu"), snapshot=False) for name in ("t", "d")]
    decoder = Decoder.with_selector(pair_of(*models), checkpoint, make_profile(), head)
    assert isinstance(decoder.policy, policy)
    assert decoder.guard is not None
    if isinstance(decoder.policy, FixedPolicy):
        assert decoder.policy.expansion == (2, 1, 1)
        assert str(decoder.policy) == "the static tree (2, 1, 1), in place of a selector that did not pay in training"


def test_a_tree_takes_the_place_of_the_selector() -> None:
    checkpoint = make_checkpoint(best_static=(2, 1, 1))
    models = [SimpleNamespace(fingerprint=name) for name in ("another t", "d")]
    decoder = Decoder.with_selector(pair_of(*models), checkpoint, head="(2, 0, 1)", guard=False)
    assert isinstance(decoder.policy, FixedPolicy)
    assert decoder.policy.expansion == (2, 0, 1)
