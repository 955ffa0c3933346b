"""The coin at every step: the text keeps the target's distribution, arms take turns, records add up."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from selector.bench import coin as coin_module
from selector.bench.coin import DECODING, Coin, OpenEnd, StepArm, coin_text
from selector.decoding.decoder import Decoder
from selector.decoding.policies import FixedPolicy, parse_policy
from selector.distributions import Sampling
from selector.latency import LatencyProfile
from selector.trees.expansion import Expansion
from selector.trees.verifiers import get_verifier
from tests.selector.decoding.test_law import PROMPT, target_law
from tests.support.every_draw import difference, every_run
from tests.support.table_model import TableModel


class ByFeatures:
    """Looks at the root, then does not speculate."""

    def choose(self, root: Any) -> Expansion:
        root.features()
        return Expansion(1, 0, 0)


RULE = "match 2: copy 3 | (2, 0, 1), else copy 1"


def arms(*trees: tuple[int, int, int]) -> list[StepArm]:
    names = ("nss", "traversal", "rbv")
    return [StepArm(str(tree), get_verifier(name), FixedPolicy(tree)) for name, tree in zip(names, trees, strict=False)]


def pair(size: int = 2, end_ids: tuple[int, ...] = ()) -> Any:
    return SimpleNamespace(target=TableModel(size, 11), draft=TableModel(size, 12), end_ids=end_ids, decode=str)


@pytest.mark.parametrize("seed", range(4))
def test_the_text_follows_the_target_whatever_the_coin_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    models, step_arms = pair(), arms((1, 0, 0), (2, 0, 1), (2, 1, 1))
    step_arms.append(StepArm("look", get_verifier("nss"), ByFeatures()))
    step_arms.append(StepArm("rule", get_verifier("traversal"), parse_policy(RULE)))

    def run() -> list[int]:
        coin, ending = Coin(step_arms, seed), OpenEnd(3, ())
        for _ in Decoder(models, coin, coin).steps(PROMPT, ending, Sampling(0.8), 0):
            pass
        return ending.tokens[:3]

    law = every_run(run, monkeypatch)
    assert difference(law, target_law(models.target, Sampling(0.8), 3)) < 1e-9


def test_a_coin_that_sees_the_tree_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: which verifier's turn it is depends on the drawn tokens."""
    models, step_arms = pair(), arms((2, 0, 1), (2, 0, 1))

    class Peeking(Coin):
        def verify(self, tree: Any, target_probs: Any, generator: Any) -> Any:
            self.arm = int(tree.tokens[1])
            return super().verify(tree, target_probs, generator)

    def run() -> list[int]:
        coin, ending = Peeking(step_arms, 0), OpenEnd(2, ())
        for _ in Decoder(models, coin, coin).steps(PROMPT, ending, Sampling(0.8), 0):
            pass
        return ending.tokens[:2]

    law = every_run(run, monkeypatch)
    assert difference(law, target_law(models.target, Sampling(0.8), 2)) > 1e-3


def records(step_arms: list[StepArm], profile: LatencyProfile, **changes: Any) -> list[Any]:
    settings: dict[str, Any] = {"prompt": [1, 0, 2], "sampling": Sampling(1.0), "seed": 5, "max_new_tokens": 400}
    return list(coin_text(pair(4), step_arms, profile, **(settings | changes)))


def test_arms_take_turns_and_every_step_is_recorded(profile: LatencyProfile) -> None:
    found = records(arms((1, 0, 0), (2, 0, 1), (1, 0, 3)), profile, place=(7, 2))
    turns = Counter(record.arm for record in found)
    assert set(turns) == {0, 1, 2}
    assert min(turns.values()) > 0.2 * len(found)
    assert {(record.prompt, record.setting) for record in found} == {(7, 2)}
    trees = {0: Expansion(1, 0, 0), 1: Expansion(2, 0, 1), 2: Expansion(1, 0, 3)}
    assert all(record.expansion == trees[record.arm] for record in found)
    assert all(1 <= record.tokens <= record.expansion.max_depth + 1 for record in found)
    assert all(len(record.seconds) == len(DECODING) and min(record.seconds) >= 0 for record in found)
    assert all(record.expected == record.tokens == 1 for record in found if record.arm == 0)


def test_expected_tokens_have_the_mean_of_those_that_happened(profile: LatencyProfile) -> None:
    found = records(arms((2, 1, 2)), profile, max_new_tokens=4000)
    gaps = [record.tokens - record.expected for record in found]
    spread = (sum(gap**2 for gap in gaps) ** 0.5) / len(gaps)
    assert abs(sum(gaps) / len(gaps)) < 4 * spread
    assert sum(gap**2 for gap in gaps) > 0


def test_the_step_in_which_the_draft_reads_the_prompt_is_left_out(
    profile: LatencyProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    always = records(arms((1, 0, 1)), profile, max_new_tokens=1)
    never = records(arms((1, 0, 0)), profile, max_new_tokens=1)
    looks = records([StepArm("look", get_verifier("nss"), ByFeatures())], profile, max_new_tokens=2)
    assert (len(always), len(never), len(looks)) == (0, 1, 1)


def test_what_a_step_leaves_to_the_draft_is_its_own_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft pass takes a second a row: over all charges, each accepted leaf costs one, and lags cost nobody."""
    profile = LatencyProfile((1,), (1, 64), ((1.0, 1.0),), ((1.0, 64.0),), (0.0, 0.0), (1.0,))
    step_arms = arms((1, 0, 0), (1, 0, 2))
    found = records(step_arms, profile, max_new_tokens=600)
    lag, ready = 0, False
    for record in found:
        if record.arm == 0:
            assert record.charge == 0
            lag += 1
            continue
        left = int(record.tokens == 3)
        if ready:
            assert record.charge == pytest.approx(left - lag)
        lag, ready = left, True
    assert ready


def test_copies_leave_more_to_the_draft_and_answer_for_it() -> None:
    """A draft pass takes a second a row. An arm that never drafts leaves nothing to itself."""
    profile = LatencyProfile((1,), (1, 64), ((1.0, 1.0),), ((1.0, 64.0),), (0.0, 0.0), (1.0,))
    policies = {"never": "copy 4", "at times": "match 2: copy 4, else (1, 0, 2)"}
    step_arms = [StepArm(name, get_verifier("nss"), parse_policy(text)) for name, text in policies.items()]
    found = records(step_arms, profile, max_new_tokens=600)
    charges = {name: [record for record in found if record.arm == arm] for arm, name in enumerate(policies)}
    assert all(record.charge == 0 for record in charges["never"])
    copied = [record for record in charges["at times"] if "copy" in str(record.expansion)]
    assert copied
    assert all(record.charge == pytest.approx(record.tokens) for record in copied)
    beside = records([StepArm("", get_verifier("nss"), parse_policy("copy 4 | (1, 0, 1)"))], profile, max_new_tokens=99)
    for before, record in itertools.pairwise(beside):
        assert record.charge == pytest.approx(record.tokens - before.tokens), "it runs the root token alone"


def test_a_text_that_repeats_itself_loops(profile: LatencyProfile) -> None:
    """In its answer: what stands in the prompt may be copied as often as it likes."""

    def counting(size: int, prompt: list[int], tokens: int) -> set[bool]:
        table = TableModel(size, 11)
        table.logits = lambda context: torch.eye(size)[(context[-1] + 1) % size]  # type: ignore[method-assign]
        models = SimpleNamespace(target=table, draft=table, end_ids=(), decode=str)
        found = coin_text(models, arms((1, 0, 0)), profile, prompt, Sampling(0.0), 0, tokens)
        return {record.looping for record in found}

    assert counting(4, [0], 60) == {True}
    assert counting(64, [*range(64), 0], 40) == {False}
    assert not any(record.looping for record in records(arms((1, 0, 0)), profile))


def test_an_arm_comes_up_as_often_as_its_weight_says() -> None:
    coin = Coin(
        [arm._replace(weight=weight) for arm, weight in zip(arms((1, 0, 0), (1, 0, 0)), (1, 3), strict=True)], 0
    )
    root: Any = SimpleNamespace(context_length=1, lag=0, match=None, sampling=Sampling())
    drawn = [(coin.choose(root), coin.arm)[1] for _ in range(4000)]
    assert 0.72 < sum(drawn) / len(drawn) < 0.78


def test_the_text_ends_with_the_step_of_an_end_token() -> None:
    ending = OpenEnd(10, (9,))
    assert ending.accept([1, 2]) == [1, 2]
    assert ending.finish is None
    assert ending.accept([3, 9, 4]) == [3, 9, 4]
    assert ending.finish == "end"
    length = OpenEnd(2, (9,))
    length.accept([1, 1, 1])
    assert length.finish == "length"
    assert coin_module.DECODING[0] == "draft"
