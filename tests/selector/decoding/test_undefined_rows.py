"""Rows of NaN and infinity: a draft's cost speed and never the law, a target's stop the text that gets to them."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from data_gen.labelling.draft_forest import draw_forest
from data_gen.labelling.trajectory import Trajectory
from selector.decoding.decoder import UNDRAFTED, Decoder
from selector.decoding.policies import RootView
from selector.distributions import Sampling, undefined, warp
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.drafting import start_root
from selector.engine.language_model import prefill
from selector.errors import UserError
from selector.features import RootFeatures
from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Expansion
from selector.trees.verifiers import VERIFIERS
from tests.selector.decoding.test_law import PROMPT, target_law
from tests.support.every_draw import difference, every_run
from tests.support.table_model import TableModel
from tests.support.tiny_models import WINDOW, tiny_model

NAN, INFINITY = float("nan"), float("inf")


def one(value: float) -> Callable[[Tensor], Tensor]:
    return lambda row: torch.cat([row[:-1], row.new_tensor([value])])


def every(value: float) -> Callable[[Tensor], Tensor]:
    return lambda row: torch.full_like(row, value)


BROKEN = {
    "a NaN": one(NAN),
    "NaN": every(NAN),
    "an infinity": one(INFINITY),
    "infinity": every(INFINITY),
    "minus infinity": every(-INFINITY),
    "both infinities": lambda row: torch.cat([one(INFINITY)(row)[1:], row.new_tensor([-INFINITY])]),
}
ROWS = list(BROKEN.values())
WARPS = [Sampling(), Sampling(0.5), Sampling(1.0, 0.7), Sampling(1.0, 1.0, 2), Sampling(1.5, 0.9, 3)]


class BrokenTable(TableModel):
    """Logits are broken, in all ways, after a share of the contexts; or wherever `places` says."""

    def __init__(self, *arguments: Any, share: float = 0.4, places: Any = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.share, self.places = share, places

    def logits(self, context: Any) -> Tensor:
        row = super().logits(context)
        chance = random.Random(str((self.seed, *context)))
        wrong = chance.random() < self.share if self.places is None else self.places(tuple(context))
        return chance.choice(ROWS)(row) if wrong else row


def pair_of(target: Any, draft: Any) -> Any:
    return SimpleNamespace(target=target, draft=draft, end_ids=(), decode=str)


@pytest.mark.parametrize("sampling", WARPS, ids=str)
@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_broken_rows_are_seen(kind: str, sampling: Sampling, dtype: torch.dtype) -> None:
    """And no others: a forbidden token and the largest finite logits are no fault."""
    row = torch.tensor([0.3, 0.1, -0.4, 2.0], dtype=dtype)
    single = torch.tensor([-INFINITY, -INFINITY, 0.0, -INFINITY], dtype=dtype)
    whole = [row, one(-INFINITY)(row), single, one(torch.finfo(dtype).max)(row)]
    logits = torch.stack([whole[0], BROKEN[kind](row), *whole[1:]])
    assert undefined(warp(logits, sampling)) == [1]
    assert undefined(warp(logits, Sampling(0.0))) == [], "greedy takes the largest, as torch's argmax does"


TREES = [Expansion(1, 0, 2), Expansion(2, 0, 2), Expansion(2, 1, 1), Expansion(3, 1, 1)]


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("expansion", TREES, ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_law_with_a_broken_draft(verifier: str, expansion: Expansion, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(TableModel(2, 11), BrokenTable(2, 14))
    decoder, undrafted = Decoder(pair, verifier, expansion), set()

    def run() -> list[int]:
        generation = decoder.generate(PROMPT, 3, Sampling(0.8))
        undrafted.add(generation.stats.undrafted)
        return generation.tokens

    law = every_run(run, monkeypatch)
    assert difference(law, target_law(pair.target, Sampling(0.8), 3)) < 1e-9
    assert len(undrafted) > 1, "some texts met such rows, and not all the same number"


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_law_on_three_tokens_and_a_reduced_head(verifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(TableModel(3, 11), BrokenTable(3, 13, support=[0, 2]))
    law = every_run(lambda: Decoder(pair, verifier, (2, 1, 1)).generate(PROMPT, 3).tokens, monkeypatch)
    assert difference(law, target_law(pair.target, Sampling(0.0), 3)) < 1e-9
    law = every_run(
        lambda: Decoder(pair, verifier, (2, 0, 2)).generate(PROMPT, 3, Sampling(1.0, 0.9)).tokens, monkeypatch
    )
    assert difference(law, target_law(pair.target, Sampling(1.0, 0.9), 3)) < 1e-9


@pytest.mark.parametrize("depth", [0, 1, 2], ids=["root", "trunk", "branch"])
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_broken_at_one_depth(verifier: str, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of that depth of the first tree; one warning a text, and the whole text is counted."""
    draft = BrokenTable(2, 12, places=lambda context: len(context) == len(PROMPT) + depth)
    pair = pair_of(TableModel(2, 11), draft)
    found = set()

    def run() -> list[int]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            generation = Decoder(pair, verifier, Expansion(2, 1, 2)).generate(PROMPT, 4, Sampling())
        assert len(caught) == (generation.stats.undrafted > 0)
        assert all(str(one.message) == UNDRAFTED for one in caught)
        assert generation.stats.to_dict()["undrafted"] == generation.stats.undrafted
        found.add(generation.stats.undrafted)
        return generation.tokens

    law = every_run(run, monkeypatch)
    assert difference(law, target_law(pair.target, Sampling(), 4)) < 1e-9
    assert max(found) >= 1


class Discarding:
    """A mutant: drops a whole tree if one of its rows is broken, which tells of the tokens that were drawn."""

    def __init__(self, verifier: str) -> None:
        self.name, self.inner = verifier, VERIFIERS[verifier]

    def verify(self, tree: DraftTree, target_probs: Tensor, generator: Any) -> Any:
        offered = tree.cut([0]) if tree.undrafted else tree
        return self.inner.verify(offered, target_probs, generator)


@pytest.mark.parametrize("verifier", [name for name in VERIFIERS if name != "nss"])  # it draws from the target alone
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_dropping_the_whole_tree_has_another_law(verifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = BrokenTable(2, 12, places=lambda context: context[-1] == 0 and len(context) > 1)
    pair = pair_of(TableModel(2, 11), draft)
    law = every_run(
        lambda: Decoder(pair, Discarding(verifier), Expansion(2, 0, 2)).generate(PROMPT, 3, Sampling()).tokens,
        monkeypatch,
    )
    assert difference(law, target_law(pair.target, Sampling(), 3)) > 1e-3


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_broken_target_is_refused_where_the_text_gets_to_it(verifier: str) -> None:
    """A row that sampling one token at a time would never meet does not stop a text; one that it meets does."""
    target = BrokenTable(2, 11, places=lambda context: len(context) > 2 and context[1:3] == (0, 1))
    decoder = Decoder(pair_of(target, TableModel(2, 12)), verifier, Expansion(2, 1, 2))
    chance = 1.0
    for prefix, token in (((), 0), ((0,), 1)):
        chance *= float(warp(target.logits([*PROMPT, *prefix]), Sampling())[token])

    def text(seed: int) -> list[int] | str:
        try:
            return decoder.generate(PROMPT, 4, Sampling(), seed).tokens
        except UserError as error:
            return str(error)

    texts = [text(seed) for seed in range(300)]
    refused = sum(isinstance(one, str) and one.startswith("target gives no distribution") for one in texts)
    assert not any(one[:2] == [0, 1] for one in texts)
    assert abs(refused / 300 - chance) < 4.5 * (chance * (1 - chance) / 300) ** 0.5
    assert len(decoder.generate(PROMPT, 4).tokens) == 4, "greedy text goes on, as that of plain generate does"


class Reads:
    """Reads the features of every root."""

    def __init__(self) -> None:
        self.seen: list[RootFeatures] = []

    def choose(self, root: RootView) -> Expansion:
        self.seen.append(root.features())
        return Expansion(2, 0, 2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_features_of_what_is_known() -> None:
    """Where the draft has no distribution at the token before the root, its features are zeros as at a text's start."""
    policy = Reads()
    pair = pair_of(TableModel(4, 1), BrokenTable(4, 2, places=lambda context: len(context) % 3 == 0))
    Decoder(pair, "specinfer", policy).generate([1, 2], 30, Sampling(), seed=3)
    whole = [bool(features.scalars.isfinite().all()) for features in policy.seen]
    assert sum(whole) > 5
    assert not all(whole), "the draft's own at the root are not known there"
    unknown = [one for one, known in zip(policy.seen, whole, strict=True) if known and not one.target_hidden.any()]
    assert unknown


def test_data_generation_refuses_both() -> None:
    everywhere = {"places": lambda context: len(context) > 2}
    with pytest.raises(UserError, match="target gives no distribution"):
        Trajectory(BrokenTable(3, 1, **everywhere), [1, 2, 0, 1], Sampling(), None)
    draft = BrokenTable(3, 1, **everywhere)
    with pytest.raises(UserError, match="draft gives no distribution"):
        draw_forest(draft, [start_root(draft, [1, 2], Sampling())], Expansion(2, 1, 1), 1, Sampling(), [0])


@pytest.mark.parametrize("value", [NAN, INFINITY], ids=str)
@pytest.mark.parametrize("kind", ["Llama", "Mistral, sliding window"])
def test_a_broken_row_spoils_no_sibling(kind: str, value: float) -> None:
    """A mask adds minus infinity, and NaN stays NaN; still every row is that of its own path.

    Token 7 is broken. The window of the second model is shorter than the context.
    """
    model = tiny_model(kind)
    with torch.no_grad():
        model.get_input_embeddings().weight[7] = value
    prompt = list(range(20, 20 + 2 * WINDOW))
    tokens, parents = [5, 7, 6, 9, 2, 8], [-1, -1, 0, 1, 0, 2]
    levels = [(0, 2), (2, 5), (5, 6)]
    engine, alone = HuggingFaceModel(model), HuggingFaceModel(model)
    prefill(engine, prompt)
    scores = [engine.extend(torch.tensor(tokens[first:last]), parents[first:last]) for first, last in levels]
    logits = torch.cat([one.logits for one in scores])
    assert undefined(warp(logits, Sampling())) == [1, 3]
    for leaf, path in ((4, [0, 4]), (5, [0, 2, 5])):
        prefill(alone, prompt)
        for row in path:
            expected = alone.extend(torch.tensor([tokens[row]]), [-1]).logits[0]
            alone.keep([0])
            torch.testing.assert_close(logits[row], expected, atol=1e-4, rtol=1e-4)
        if leaf == 5:
            engine.keep(path)
    after = engine.extend(torch.tensor([3]), [-1]).logits
    torch.testing.assert_close(after, alone.extend(torch.tensor([3]), [-1]).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_greedy_text_with_a_draft_that_overflows(verifier: str, target: HuggingFaceModel) -> None:
    """The draft is the target but for one token, whose state is infinite: from there on nothing of it is known."""
    draft = copy.deepcopy(target.model)
    plain = target.model.generate(torch.tensor([[3, 4]]), max_new_tokens=24, do_sample=False)[0, 2:].tolist()
    with torch.no_grad():
        draft.get_input_embeddings().weight[plain[11]] = INFINITY
    pair = pair_of(target, HuggingFaceModel(draft))
    decoder = Decoder(pair, verifier, Expansion(2, 0, 3), draft_warp=(1.0, 1.0))
    generation = decoder.generate([3, 4], 24)
    assert generation.tokens == plain
    assert generation.stats.undrafted > 0 < generation.stats.accepted


@pytest.mark.parametrize("prompt", [[3], [3, 4, 5]], ids=["empty cache", "cache"])
@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("value", [NAN, INFINITY], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_drafted_token_that_breaks_the_target(
    value: float, dtype: torch.dtype, pack: bool, prompt: list[int]
) -> None:
    """In chains and branched trees: the target never emits it, so every text is plain generate's, and none is refused.

    The draft's laws are flat, so that many trees hold the token, and rows above and beside it.
    """
    target = tiny_model("Llama", scale=3.0).to(dtype)
    draft = copy.deepcopy(target)
    with torch.no_grad():
        target.get_input_embeddings().weight[60] = value
        target.lm_head.weight[60] = 0
        draft.lm_head.weight.mul_(0.01)
    expected = target.generate(torch.tensor([prompt]), max_new_tokens=10, do_sample=False)[0, len(prompt) :].tolist()
    assert 60 not in expected
    pair = pair_of(HuggingFaceModel(target, pack=pack), HuggingFaceModel(draft, pack=pack))
    for tree in (Expansion(1, 0, 3), Expansion(1, 2, 0), Expansion(2, 1, 2)):
        decoder = Decoder(pair, "traversal", tree, draft_warp=(5.0, 1.0))
        for seed in range(4):
            assert decoder.generate(prompt, 10, Sampling(0.0), seed).tokens == expected


@pytest.mark.parametrize("kind", ["Llama", "Mistral, sliding window"])
@pytest.mark.parametrize("value", [NAN, INFINITY], ids=str)
@pytest.mark.parametrize("before", [0, 3])
def test_a_broken_row_spoils_no_row_above_it(before: int, value: float, kind: str) -> None:
    """A chain in one pass: the rows in front of the broken token 7 are those of a chain without it, also once kept."""
    model = tiny_model(kind)
    with torch.no_grad():
        model.get_input_embeddings().weight[7] = value
    engine, alone = HuggingFaceModel(model), HuggingFaceModel(model)
    for one in (engine, alone):
        prefill(one, list(range(20, 20 + before)))
    rows = engine.extend(torch.tensor([5, 6, 9, 7, 8]), range(-1, 4)).logits
    expected = alone.extend(torch.tensor([5, 6, 9]), range(-1, 2)).logits
    assert not rows[3:].isfinite().any()
    torch.testing.assert_close(rows[:3], expected, atol=1e-4, rtol=1e-4)
    texts = []
    for one in (engine, alone):
        one.keep(range(3))
        texts.append(one.extend(torch.tensor([2]), [-1]).logits)
    torch.testing.assert_close(*texts, atol=1e-4, rtol=1e-4)
