"""One work unit: where roots lie, their features, that labelling leaves no trace in the text or the caches."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from data_gen.labelling import label_unit as roots
from data_gen.labelling import scoring
from data_gen.labelling.below import deepest
from data_gen.labelling.label_unit import SECTIONS, chunk_size, label_unit
from data_gen.labelling.trajectory import Trajectory
from data_gen.prompts.prompts import load_prompts
from data_gen.work_units import plan_units
from selector.decoding.sequence import SpeculativeSequence
from selector.decoding.stats import Stopwatch
from selector.distributions import Sampling, warp
from selector.engine.huggingface import HuggingFaceModel
from selector.features import SCALARS
from selector.trees.expansion import ActionSpace
from selector.trees.verifiers import get_verifier
from tests.support.distances import entropy
from tests.support.small_runs import small_config, table_pair

SPACE = ActionSpace(2, 1, 2)
COPIES = ActionSpace(2, 1, 2, copied=(3, 1), beside=((1, 0, 1),), below=((2, 0, 2), (2, 1, 1)))
PROMPT = [0, 1, 2]
REPEATING = [5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6]


def unit_of(prompt_file, place=0):
    return plan_units(small_config([prompt_file]).generate, load_prompts([prompt_file]))[place]


def run(pair, unit, prompt=PROMPT, end=(), space=SPACE, **changes):
    config = small_config(["builtin"], **changes).generate
    return label_unit(pair.target, pair.draft, prompt, unit, config, space, end)


def plain_text(pair, unit, steps, prompt=PROMPT):
    """The unit's text without any labelling."""
    generator = torch.Generator().manual_seed(unit.seed("trajectory"))
    trajectory = Trajectory(pair.target, prompt, unit.sampling, generator)
    for _ in range(steps):
        trajectory.step()
    return trajectory.tokens


def test_root_positions_and_context_lengths(prompt_file):
    records = run(table_pair(), unit_of(prompt_file))
    assert [record.position for record in records] == [0, 3, 6]
    assert [record.context_length for record in records] == [2, 5, 8]
    assert [r.position for r in run(table_pair(), unit_of(prompt_file), root_every=1, max_new_tokens=3)] == [0, 1, 2]


def test_no_root_after_the_end(prompt_file):
    pair, unit = table_pair(), unit_of(prompt_file)
    text = plain_text(pair, unit, 7)
    end = text[len(PROMPT) + 3]
    first = text[len(PROMPT) :].index(end) + 1
    assert [record.position for record in run(pair, unit, end=(end,))] == list(range(0, first, 3))


@pytest.mark.parametrize("space", [SPACE, COPIES])
def test_labelling_does_not_touch_the_text(prompt_file, space):
    pair, unit = table_pair(), unit_of(prompt_file)
    run(pair, unit, num_samples=4, space=space)
    assert pair.target.committed == plain_text(table_pair(), unit, 7)[:-1]
    assert pair.draft.committed == pair.target.committed[: len(pair.draft.committed)]


@pytest.mark.parametrize("every", [1, 3])
def test_features_are_those_of_the_context(prompt_file, every):
    pair, unit = table_pair(), unit_of(prompt_file)
    text = plain_text(pair, unit, 7)
    for record in run(pair, unit, root_every=every):
        context = text[: record.context_length + 1]
        values = dict(zip(SCALARS, record.scalars.tolist(), strict=True))
        root_law = warp(pair.draft.logits(context), unit.draft_sampling)
        prev_law = warp(pair.target.logits(context[:-1]), unit.sampling)
        assert values["draft_entropy_root"] == pytest.approx(float(entropy(root_law)), abs=1e-5)
        assert values["target_entropy_prev"] == pytest.approx(float(entropy(prev_law)), abs=1e-5)
        assert values["context_length"] == record.context_length
        assert record.target_hidden.tolist() == [len(context) - 1, context[-2], pair.target.seed]
        assert record.draft_hidden_root.tolist() == [len(context), context[-1], pair.draft.seed]
        assert record.draft_hidden_prev.tolist() == [len(context) - 1, context[-2], pair.draft.seed]


def test_one_token_prompt(prompt_file):
    first, second, _ = run(table_pair(), unit_of(prompt_file), prompt=[2])
    assert not first.target_hidden.any()
    assert second.target_hidden.any()


def test_halves_and_standard_error(prompt_file, monkeypatch):
    drawn = iter(torch.arange(1, 100.0))
    monkeypatch.setattr(
        roots, "label_drawing", lambda drawing, space, names: {n: next(drawn).expand(len(space)) for n in names}
    )
    record = run(table_pair(), unit_of(prompt_file), num_samples=4, verifiers=["nss"])[0]
    assert record.efficiency["nss"][:, 0].tolist() == [1.5, 3.5]
    assert float(record.standard_error["nss"][0]) == pytest.approx(torch.tensor([1.0, 2, 3, 4]).std().item() / 2)


def test_scoring_in_pieces_is_the_same(prompt_file, monkeypatch):
    pair, unit = table_pair(), unit_of(prompt_file)
    whole = run(pair, unit, space=COPIES)
    monkeypatch.setattr(scoring, "SCORE_ROWS", 3)
    for one, other in zip(whole, run(pair, unit, space=COPIES), strict=True):
        torch.testing.assert_close(one.efficiency, other.efficiency)


@pytest.mark.parametrize("space", [SPACE, COPIES])
@pytest.mark.parametrize("every", [1, 3])
def test_chunks_are_the_same_roots(prompt_file, monkeypatch, every, space):
    pair, unit = table_pair(), unit_of(prompt_file)
    passes = []
    extend = pair.target.extend
    pair.target.extend = lambda tokens, *args, **options: passes.append(len(tokens)) or extend(tokens, *args, **options)
    together = run(pair, unit, root_every=every, num_samples=4, space=space)
    whole = len(passes)
    monkeypatch.setattr(roots, "CHUNK_ROWS", 1)
    alone = run(pair, unit, root_every=every, num_samples=4, space=space)
    assert len(passes) - whole > whole  # the same text and more forests
    assert [record.position for record in alone] == [record.position for record in together]
    for one, other in zip(alone, together, strict=True):
        tensors = [{name: v for name, v in vars(r).items() if isinstance(v, Tensor | dict)} for r in (one, other)]
        torch.testing.assert_close(*tensors)
        assert one.context_length == other.context_length


def test_chunk_sizes_keep_to_the_budget(monkeypatch):
    monkeypatch.setattr(roots, "CHUNK_ROWS", 100)
    assert [chunk_size(rows) for rows in (1000, 101, 100, 50, 33)] == [1, 1, 1, 2, 3]
    assert chunk_size(5, before=1) == 4
    assert chunk_size(50, before=3) == 2


def test_how_deep_labels_look():
    assert [deepest(space) for space in (SPACE, ActionSpace(2, 1, 2, copied=(8,)), COPIES)] == [3, 8, 3 + 3]


def test_greedy_labels_are_the_tokens_of_steps(prompt_file, target, draft):
    """All that is drawn is sure: a label is what a decoding step commits from the same text."""
    unit = replace(unit_of(prompt_file), sampling=(greedy := Sampling(temperature=0)), draft_sampling=greedy)
    config = small_config(["builtin"], max_new_tokens=40, root_every=1, verifiers=["traversal", "bv"]).generate
    records = label_unit(target, draft, REPEATING, unit, config, COPIES, ())
    trajectory = Trajectory(target, REPEATING, greedy, None)
    while trajectory.position < 40:
        trajectory.step()
    sequence = SpeculativeSequence(target, draft, greedy, greedy, torch.Generator(), Stopwatch(defaultdict(float)))
    copied = 0
    for record in records:
        text = trajectory.tokens[: record.context_length + 1]
        for action, expansion in enumerate(COPIES.copies, len(COPIES.drafted)):
            name = "traversal" if expansion.beside else "bv"
            sequence.prefill(text)
            committed = sequence.step(sequence.available(expansion), get_verifier(name))
            assert record.efficiency[name][:, action].tolist() == pytest.approx([len(committed.tokens)] * 2)
            copied += 0 < committed.copied == committed.accepted_copies < len(committed.tokens) - 1
    assert copied > 3


def test_seconds_by_section(prompt_file):
    seconds = defaultdict(float)
    pair, unit = table_pair(), unit_of(prompt_file)
    label_unit(pair.target, pair.draft, PROMPT, unit, small_config(["builtin"]).generate, SPACE, (), Stopwatch(seconds))
    assert set(seconds) == {*SECTIONS, "other"}
    assert all(seconds[name] > 0 for name in SECTIONS)


def test_transformers_models(prompt_file, target: HuggingFaceModel, draft: HuggingFaceModel):
    """The caches after a unit equal those of the text alone: the next token's logits agree."""
    unit, config = unit_of(prompt_file), small_config(["builtin"]).generate
    records = label_unit(target, draft, PROMPT, unit, config, SPACE, ())
    assert [record.position for record in records] == [0, 3, 6]
    for labels in records[0].efficiency.values():
        assert (labels >= 1 - 1e-5).all()
    generator = torch.Generator().manual_seed(unit.seed("trajectory"))
    length = target.length
    after = target.extend(torch.tensor([5]), [-1]).logits
    trajectory = Trajectory(target, PROMPT, unit.sampling, generator)
    for _ in range(7):
        trajectory.step()
    trajectory.commit()
    assert target.length == length
    torch.testing.assert_close(target.extend(torch.tensor([5]), [-1]).logits, after, rtol=1e-4, atol=1e-4)
