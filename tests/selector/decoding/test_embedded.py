"""The embedded pair: greedy text in float32 is exactly transformers' own."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from selector.config import PairConfig
from selector.decoding.custom_generate import ddte_generate
from selector.decoding.decoder import Decoder
from selector.distributions import Sampling
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.early_exit import build_early_exit
from selector.engine.embedded import WHEEL, embedded_folder
from selector.engine.huggingface import Pair, end_tokens, load_pair
from selector.engine.reference_generate import transformers_generate
from selector.trees.expansion import Expansion

pytestmark = pytest.mark.slow

SHIPPED_DRAFT = Path("checkpoints/smollm2-135m/draft")
TOKENS = 128
EXPANSIONS = [Expansion(*numbers) for numbers in [(1, 0, 6), (2, 1, 3), (4, 0, 4), (3, 2, 2), (8, 0, 2), (1, 0, 0)]]
QUESTIONS = [
    "Write a short poem about a lighthouse.",
    "What is 17 times 23? Show the steps.",
    "Translate to French: The weather is nice today.",
    "Write a Python function that reverses a list.",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "Explain recursion to a child.",
    "List five animals that live in the sea.",
    "Translate to Spanish: Where is the nearest station?",
    "A train covers 180 km in 2.5 hours. What is its speed?",
    "Begin a story with an old clock that runs backwards.",
    "Write an SQL query that counts the orders of each customer.",
    "What is the capital of Australia, and why not Sydney?",
    "Prove that the sum of two even numbers is even.",
    "Translate to Italian: I would like a cup of coffee, please.",
    "Describe a market at dawn in three sentences.",
    "What does the HTTP status 404 mean?",
    "How many ways are there to choose 3 of 10 books?",
    "Write a polite letter that turns down an invitation.",
    "Name the planets in order of distance from the sun.",
]


def wheel_is_installed() -> bool:
    try:
        distribution(WHEEL)
    except PackageNotFoundError:
        return False
    return True


@cache
def embedded_pair() -> Pair:
    """With the shipped draft; without it, an untrained early exit and its reduced head."""
    if not wheel_is_installed():
        pytest.skip(f"the wheel {WHEEL} is not installed")
    if SHIPPED_DRAFT.is_dir():
        return load_pair(PairConfig(dtype="float32", device="cpu"))
    folder = embedded_folder()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    support = torch.arange(8192)
    draft = HuggingFaceModel(build_early_exit(model, [0, 29], support), support, tokenizer)
    target = HuggingFaceModel(model, tokenizer=tokenizer)
    return Pair(target, draft, tokenizer, end_tokens(model, tokenizer), torch.float32, PairConfig())


@cache
def reference(question: str) -> list[int]:
    pair = embedded_pair()
    return transformers_generate(pair.target, pair.encode(question), TOKENS, Sampling(0.0), end_ids=pair.end_ids)


@pytest.mark.parametrize("verifier", ["nss", "naive", "specinfer", "traversal"])
@pytest.mark.parametrize("place", range(len(QUESTIONS)))
def test_greedy_text_is_that_of_generate(place: int, verifier: str) -> None:
    """Every verifier meets every prompt; the expansions take turns. The draft samples, so that branches differ."""
    pair = embedded_pair()
    decoder = Decoder(pair, verifier, EXPANSIONS[place % len(EXPANSIONS)], draft_warp=(0.8, 1.0))
    generation = decoder.generate(QUESTIONS[place], TOKENS)
    assert generation.tokens == reference(QUESTIONS[place])
    assert generation.text == pair.decode(generation.tokens)


@pytest.mark.parametrize("place", range(0, len(QUESTIONS), 5))
def test_greedy_text_through_custom_generate(place: int) -> None:
    pair = embedded_pair()
    ids = torch.tensor([pair.encode(QUESTIONS[place])])
    tree = {"custom_generate": ddte_generate, "expansion": EXPANSIONS[place % len(EXPANSIONS)]}
    output = pair.target.model.generate(ids, max_new_tokens=TOKENS, tokenizer=pair.tokenizer, **tree)
    assert output[0, ids.shape[1] :].tolist() == reference(QUESTIONS[place])
