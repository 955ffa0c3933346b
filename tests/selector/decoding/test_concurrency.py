"""Several texts at once from one decoder are the texts that it gives one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from selector.decoding.custom_generate import ddte_generate
from selector.decoding.decoder import Decoder
from selector.decoding.generation import Step
from selector.decoding.guard import Guard
from selector.decoding.policies import RootView
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.early_exit import build_early_exit
from selector.features import SCALARS
from selector.trees.expansion import Expansion
from tests.support.profiles import make_flat_profile
from tests.support.table_model import TableModel

PROMPTS = [[3, 4, 5], [9, 8, 7, 6], [1]]
COUNT = 20
Make = Callable[[], Decoder]


class ByEntropy:
    """Reads the features of every root, and takes a tree by the draft's entropy there."""

    def choose(self, root: RootView) -> Expansion:
        entropy = float(root.features().scalars[SCALARS.index("draft_entropy_root")])
        return [Expansion(1, 0, 0), Expansion(1, 0, 3), Expansion(3, 1, 1)][int(10 * entropy) % 3]


def tables() -> Decoder:
    models = {"target": TableModel(10, 0), "draft": TableModel(10, 1, support=[0, 1, 2, 5])}
    return Decoder(SimpleNamespace(**models, end_ids=(), decode=str), "gbv", Expansion(3, 1, 2))  # type: ignore[arg-type]


def guarded() -> Decoder:
    """The guard of a machine on which this draft hardly ever pays."""
    decoder = tables()
    decoder.guard = Guard(make_flat_profile())
    return decoder


def llamas(target: LlamaForCausalLM, policy: Any) -> Decoder:
    support = torch.arange(0, 64, 2)
    draft = HuggingFaceModel(build_early_exit(target, [0], support), support)
    pair: Any = SimpleNamespace(target=HuggingFaceModel(target), draft=draft, end_ids=(), decode=str)
    return Decoder(pair, "traversal", policy)


def streams(decoder: Decoder) -> list[Iterator[Step]]:
    return [
        decoder.stream(prompt, max_new_tokens=COUNT, sampling=Sampling(0.9), seed=seed)
        for seed, prompt in enumerate(PROMPTS)
    ]


@pytest.fixture(params=["tables", "guarded", "static", "features"])
def decoder(request: pytest.FixtureRequest, target_llama: LlamaForCausalLM) -> Decoder:
    """The draft of the last two shares the target's head, so that passes of both listen at one module."""
    made: dict[str, Make] = {
        "tables": tables,
        "guarded": guarded,
        "static": lambda: llamas(target_llama, Expansion(2, 0, 2)),
        "features": lambda: llamas(target_llama, ByEntropy()),
    }
    return made[request.param]()


@pytest.fixture
def separate(decoder: Decoder) -> list[list[int]]:
    return [[token for step in stream for token in step.tokens] for stream in streams(decoder)]


def test_interleaved_streams(decoder: Decoder, separate: list[list[int]]) -> None:
    """Step by step in turn; and each stream inside the one before."""
    texts: list[list[int]] = [[] for _ in PROMPTS]
    running = dict(enumerate(streams(decoder)))
    while running:
        for number, stream in list(running.items()):
            step = next(stream, None)
            if step is None:
                del running[number]
            else:
                texts[number] += step.tokens
    assert texts == separate
    nested: list[list[int]] = [[] for _ in PROMPTS]

    def run(left: list[tuple[int, Iterator[Step]]]) -> None:
        if left:
            (number, stream), *inner = left
            nested[number] += next(stream).tokens
            run(inner)
            for step in stream:
                nested[number] += step.tokens

    run(list(enumerate(streams(decoder))))
    assert nested == separate


def test_an_abandoned_stream_leaves_nothing_behind(decoder: Decoder, separate: list[list[int]]) -> None:
    next(streams(decoder)[0])
    assert [[token for step in stream for token in step.tokens] for stream in streams(decoder)] == separate


def in_threads(work: Callable[[int], list[int]]) -> list[list[list[int]]]:
    """Three texts by each of as many threads as there are prompts, all begun together; errors are raised here."""
    found: list[list[list[int]]] = [[] for _ in PROMPTS]
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(PROMPTS))

    def run(number: int) -> None:
        barrier.wait()
        try:
            found[number] += [work(number) for _ in range(3)]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def test_threads(decoder: Decoder, separate: list[list[int]]) -> None:
    def work(number: int) -> list[int]:
        return decoder.generate(PROMPTS[number], COUNT, Sampling(0.9), number).tokens

    assert in_threads(work) == [[text] * 3 for text in separate]


def plain(target: LlamaForCausalLM, number: int, **options: Any) -> list[int]:
    ids = torch.tensor([PROMPTS[number]])
    output = target.generate(ids, max_new_tokens=COUNT, do_sample=False, **options)
    return output[0, ids.shape[1] :].tolist()  # type: ignore[no-any-return]


def test_threads_of_generate(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM) -> None:
    options = {"custom_generate": ddte_generate, "draft": draft_llama, "expansion": (2, 0, 2)}
    expected = [[plain(target_llama, number)] * 3 for number in range(len(PROMPTS))]
    assert in_threads(lambda number: plain(target_llama, number, **options)) == expected


def test_a_streamer_that_generates(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM) -> None:
    options = {"custom_generate": ddte_generate, "draft": draft_llama, "expansion": (2, 0, 2)}
    inner: list[list[int]] = []

    class Nested:
        def put(self, value: Any) -> None:
            inner.append(plain(target_llama, 1, **options))

        def end(self) -> None:
            pass

    streamed = options | {"custom_generate": partial(ddte_generate, streamer=Nested())}
    assert plain(target_llama, 0, **streamed) == plain(target_llama, 0)
    assert inner[1:]
    assert inner == [plain(target_llama, 1)] * len(inner)


def test_caches_are_the_sequences_own(target: HuggingFaceModel) -> None:
    """A fresh model shares the weights; what one runs, keeps and forgets is nothing to the other."""
    other = target.fresh()
    target.extend(torch.tensor([1, 2, 3]), [-1, 0, 1])
    target.keep([0, 1, 2])
    assert (target.length, other.length) == (3, 0)
    alone = other.extend(torch.tensor([5]), [-1]).logits
    assert torch.equal(alone, HuggingFaceModel(target.model).extend(torch.tensor([5]), [-1]).logits)
    assert other.model is target.model
    other.reset()
    assert target.length == 3
