"""`target.generate(custom_generate=ddte_generate)`: the text and the law of plain `generate`, or a refusal by name."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from tokenizers.decoders import Fuse
from transformers import (
    DynamicCache,
    GenerationConfig,
    LlamaForCausalLM,
    LogitsProcessorList,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from selector.config import PairConfig
from selector.decoding import pass_times
from selector.decoding.custom_generate import DdteOutput, ddte_generate
from selector.decoding.decoder import Decoder
from selector.engine.huggingface import pair_with
from selector.errors import UserError
from selector.network.checkpoint import SelectorCheckpoint
from tests.support.every_draw import Law, difference, every_run
from tests.support.tiny_models import tiny_llama
from tests.support.untrained import untrained_selector

PROMPT = torch.tensor([[3, 4, 5]])
TREE = {"custom_generate": ddte_generate, "expansion": (3, 1, 2), "verifier": "specinfer"}


def letters() -> PreTrainedTokenizerFast:
    """64 tokens, a character each."""
    characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+"
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(characters)}, []))
    tokenizer.decoder = Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


class Put:
    """A streamer that keeps what it is given."""

    def __init__(self) -> None:
        self.values: list[list[Any]] = []
        self.ended = 0

    def put(self, value: torch.Tensor) -> None:
        self.values.append(value.tolist())

    def end(self) -> None:
        self.ended += 1


class TwelveTokens(StoppingCriteria):
    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return torch.tensor([input_ids.shape[1] >= 12])


def plain_text(target: LlamaForCausalLM, count: int = 40) -> list[int]:
    return target.generate(PROMPT, max_new_tokens=count, do_sample=False)[0, 3:].tolist()


GREEDY: list[dict[str, Any]] = [
    {"max_new_tokens": 40},
    {"max_new_tokens": 1},
    {"max_length": 17},
    {"generation_config": GenerationConfig(max_new_tokens=25, temperature=0.7, top_p=0.9, do_sample=False)},
    {"max_new_tokens": 12, "min_p": 0.1, "typical_p": 0.5},
    {"max_new_tokens": 12, "renormalize_logits": True, "num_beams": 1, "repetition_penalty": 1.0},
    {"max_new_tokens": 40, "stopping_criteria": StoppingCriteriaList([TwelveTokens()])},
    {"max_new_tokens": 12, "attention_mask": torch.ones(1, 3, dtype=torch.long), "max_time": 1e6},
    {},
]


@pytest.mark.parametrize("arguments", GREEDY, ids=lambda arguments: " ".join(arguments) or "default length")
def test_greedy_text(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM, arguments: dict[str, Any]) -> None:
    expected = target_llama.generate(PROMPT, **arguments)
    output = target_llama.generate(PROMPT, **TREE, draft=draft_llama, **arguments)
    assert output.tolist() == expected.tolist()
    assert output.dtype == expected.dtype


@pytest.mark.parametrize("position", [0, 3, 11])
def test_end_tokens(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM, position: int) -> None:
    text = plain_text(target_llama)
    for end in (text[position], [text[position], text[30]]):
        arguments = {"max_new_tokens": 40, "eos_token_id": end, "pad_token_id": 0}
        expected = target_llama.generate(PROMPT, **arguments).tolist()
        assert len(expected[0]) < 43
        assert target_llama.generate(PROMPT, **TREE, draft=draft_llama, **arguments).tolist() == expected


def test_stop_strings(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM) -> None:
    tokenizer = letters()
    stop = tokenizer.decode(plain_text(target_llama)[9:12])
    arguments: dict[str, Any] = {"max_new_tokens": 40, "stop_strings": ["no such", stop]}
    expected = target_llama.generate(PROMPT, tokenizer=tokenizer, **arguments).tolist()
    assert len(expected[0]) <= 15
    call = partial(ddte_generate, draft=draft_llama, expansion=(3, 1, 2), tokenizer=tokenizer)
    assert target_llama.generate(PROMPT, custom_generate=call, **arguments).tolist() == expected
    with pytest.raises(UserError, match="stop_strings needs a tokenizer"):
        target_llama.generate(PROMPT, **TREE, draft=draft_llama, **arguments)


def test_streamer_gets_what_plain_generate_gives_it(
    target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM
) -> None:
    expected, streamer = Put(), Put()
    target_llama.generate(PROMPT, max_new_tokens=20, streamer=expected)
    call = partial(ddte_generate, draft=draft_llama, expansion=(3, 1, 2), streamer=streamer)
    target_llama.generate(PROMPT, max_new_tokens=20, custom_generate=call)
    assert streamer.values == expected.values
    assert streamer.ended == expected.ended == 1
    with pytest.raises(UserError, match="streamer is not handed on by generate: bind it"):
        target_llama.generate(PROMPT, **TREE, draft=draft_llama, streamer=streamer)


def test_output_with_statistics(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM) -> None:
    output = target_llama.generate(PROMPT, **TREE, draft=draft_llama, max_new_tokens=20, return_dict_in_generate=True)
    assert isinstance(output, DdteOutput)
    assert output.sequences[0, 3:].tolist() == plain_text(target_llama, 20)
    assert output.stats is not None
    assert output.stats.tokens == 20


def test_seed(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM) -> None:
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(target_llama.generate(PROMPT, **TREE, draft=draft_llama, do_sample=True, max_new_tokens=20))
    assert texts[0].tolist() == texts[1].tolist() != texts[2].tolist()
    state = torch.get_rng_state()
    target_llama.generate(PROMPT, **TREE, draft=draft_llama, max_new_tokens=20)
    assert torch.equal(state, torch.get_rng_state())


def warped_law(target: LlamaForCausalLM, prompt: list[int], count: int, warpers: LogitsProcessorList) -> Law:
    """Law of `count` tokens, from one plain pass a prefix and transformers' own warpers."""
    law: Law = {(): 1.0}
    for _ in range(count):
        longer: Law = {}
        for text, probability in law.items():
            with torch.no_grad():
                logits = target(torch.tensor([[*prompt, *text]])).logits[:, -1].double()
            for token, chance in enumerate(torch.softmax(warpers(None, logits), -1)[0].tolist()):
                if chance > 0:
                    longer[(*text, token)] = probability * chance
        law = longer
    return law


@pytest.mark.parametrize(
    ("settings", "warpers"),
    [
        ({"top_k": 0}, []),
        ({"temperature": 0.7, "top_k": 2}, [TemperatureLogitsWarper(0.7), TopKLogitsWarper(2)]),
        ({"temperature": 1.4, "top_p": 0.8}, [TemperatureLogitsWarper(1.4), TopPLogitsWarper(0.8)]),
    ],
    ids=["whole law", "temperature and top-k", "temperature and top-p"],
)
@pytest.mark.parametrize("verifier", ["traversal", "specinfer"])
def test_sampled_law(
    settings: dict[str, Any], warpers: list[Any], verifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every draw enumerated, through the public call."""
    target, draft = tiny_llama(0, vocab=3, scale=1.0), tiny_llama(1, vocab=3, scale=1.0)
    tree = {"custom_generate": ddte_generate, "draft": draft, "verifier": verifier, "expansion": (2, 0, 1)}

    def run() -> list[int]:
        output = target.generate(torch.tensor([[1]]), do_sample=True, max_new_tokens=2, **settings, **tree)
        tokens: list[int] = output[0, 1:].tolist()
        return tokens

    law = every_run(run, monkeypatch)
    assert sum(law.values()) == pytest.approx(1)
    assert difference(law, warped_law(target, [1], 2, LogitsProcessorList(warpers))) < 1e-5


REFUSED: dict[str, dict[str, Any]] = {
    "num_beams": {"num_beams": 2},
    "num_return_sequences": {"num_return_sequences": 2, "do_sample": True},
    "repetition_penalty": {"repetition_penalty": 1.1},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "bad_words_ids": {"bad_words_ids": [[3]]},
    "suppress_tokens": {"suppress_tokens": [3]},
    "sequence_bias": {"sequence_bias": {(3,): -1.0}},
    "min_length": {"min_length": 9},
    "min_new_tokens": {"min_new_tokens": 9},
    "exponential_decay_length_penalty": {"exponential_decay_length_penalty": (3, 1.1), "eos_token_id": 1},
    "guidance_scale": {"guidance_scale": 1.5},
    "min_p": {"do_sample": True, "min_p": 0.1},
    "typical_p": {"do_sample": True, "typical_p": 0.5},
    "epsilon_cutoff": {"do_sample": True, "epsilon_cutoff": 0.1},
    "top_h": {"do_sample": True, "top_h": 0.4},
    "prompt_lookup_num_tokens": {"prompt_lookup_num_tokens": 3},
    "use_cache": {"use_cache": False},
    "cache_implementation": {"cache_implementation": "static"},
    "output_scores": {"output_scores": True, "return_dict_in_generate": True},
    "output_hidden_states": {"output_hidden_states": True, "return_dict_in_generate": True},
    "logits_processor": {"logits_processor": LogitsProcessorList([TemperatureLogitsWarper(2.0)])},
    "prefix_allowed_tokens_fn": {"prefix_allowed_tokens_fn": lambda batch, ids: [3, 4]},
    "attention_mask": {"attention_mask": torch.tensor([[0, 1, 1]])},
    "position_ids": {"position_ids": torch.tensor([[1, 2, 3]])},
    "past_key_values": {"past_key_values": DynamicCache()},
    "synced_gpus": {"synced_gpus": True},
    "no/such/checkpoint": {"checkpoint": "no/such/checkpoint"},
    "draft": {"draft": "./no-such-draft", "tokenizer": letters()},
    "verifier": {"verifier": "best"},
    "expansion": {"expansion": (0, 1, 2)},
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM, name: str) -> None:
    arguments: dict[str, Any] = TREE | {"draft": draft_llama, "max_new_tokens": 5} | REFUSED[name]
    with pytest.raises(UserError, match=name):
        target_llama.generate(PROMPT, **arguments)


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("draft", 5, "a draft folder, a hub id or a loaded model"),
        ("draft", ["a"], "a draft folder, a hub id or a loaded model"),
        ("checkpoint", 5, "a checkpoint"),
        ("verifier", 5, "a verifier's name"),
        ("expansion", 5, r"\(K, L1, L2\)"),
        ("expansion", "(3, 1, 2)", r"\(K, L1, L2\)"),
        ("guard", "yes", "True or False"),
        ("profile", 5, "a LatencyProfile, 'machine' or 'checkpoint'"),
    ],
)
def test_own_arguments_of_another_kind(target_llama: LlamaForCausalLM, name: str, value: Any, way_out: str) -> None:
    call = partial(ddte_generate, **{name: value})
    with pytest.raises(UserError, match=f"^{name} is {re.escape(repr(value))}: give {way_out}"):
        target_llama.generate(PROMPT, custom_generate=call, max_new_tokens=4)


def test_other_refusals(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM) -> None:
    tree: dict[str, Any] = TREE | {"draft": draft_llama}
    with pytest.raises(UserError, match="assistant_model is LlamaForCausalLM"):
        target_llama.generate(PROMPT, **tree, assistant_model=draft_llama)
    with pytest.raises(UserError, match="input_ids hold 2 sequences"):
        target_llama.generate(PROMPT.repeat(2, 1), **tree, max_new_tokens=5)
    with pytest.raises(UserError, match="checkpoint and expansion are left out"):
        target_llama.generate(PROMPT, custom_generate=ddte_generate, draft=draft_llama, max_new_tokens=5)
    with pytest.raises(UserError, match="and the target holds 1024 tokens in all"):
        target_llama.generate(PROMPT, **tree, max_new_tokens=2000)
    with pytest.raises(UserError, match="vocabulary of 2048 tokens"):
        target_llama.generate(PROMPT, **TREE, draft=tiny_llama(vocab=2048), max_new_tokens=5)
    own = LogitsProcessorList([TemperatureLogitsWarper(2.0)])
    with pytest.raises(UserError, match="logits_processor is TemperatureLogitsWarper"):
        target_llama.generate(PROMPT, **tree, do_sample=True, temperature=0.5, logits_processor=own)


def test_checkpoint(tmp_path: Path, target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM) -> None:
    folder, pair = tmp_path / "naive", pair_with(target_llama, None, PairConfig(), draft_llama, pack=False)
    untrained_selector(pair).save(folder, "# Card\n")
    call = partial(target_llama.generate, PROMPT, custom_generate=ddte_generate, checkpoint=folder, max_new_tokens=40)
    expected = target_llama.generate(PROMPT, max_new_tokens=40).tolist()
    for guard in (True, False):
        assert call(draft=draft_llama, guard=guard).tolist() == expected
    output = call(draft=draft_llama, expansion=(2, 1, 2), return_dict_in_generate=True)
    assert output.sequences.tolist() == expected
    assert max(output.stats.actions, key=output.stats.actions.get) == (2, 1, 2)
    decoder = Decoder.with_selector(pair, SelectorCheckpoint.load(folder))
    own = partial(ddte_generate, decoder=decoder)
    assert target_llama.generate(PROMPT, custom_generate=own, max_new_tokens=40).tolist() == expected
    with pytest.raises(UserError, match="leave out checkpoint"):
        target_llama.generate(PROMPT, custom_generate=own, checkpoint=folder, max_new_tokens=40)
    with pytest.raises(UserError, match="built for another model"):
        draft_llama.generate(PROMPT, custom_generate=own, max_new_tokens=40)
    with pytest.raises(UserError, match="verifier is 'nss', and the checkpoint's selector is for 'naive'"):
        call(draft=draft_llama, verifier="nss")
    with pytest.raises(UserError, match="made for another draft model"):
        call(draft=tiny_llama(3))


def test_pass_times_are_measured_in_the_first_call_alone(
    tmp_path: Path, target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And measuring draws none of the numbers that sampled text follows from."""
    monkeypatch.setenv("DDTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pass_times, "SHORT", (3,))
    monkeypatch.setattr(pass_times, "TRIES", 1)
    folder, pair = tmp_path / "naive", pair_with(target_llama, None, PairConfig(), draft_llama, pack=False)
    untrained_selector(pair, {"device": "toy"}).save(folder, "# Card\n")
    settings: dict[str, Any] = {"checkpoint": folder, "draft": draft_llama, "do_sample": True, "max_new_tokens": 20}
    texts, kept = [], []
    for _ in range(2):
        torch.manual_seed(5)
        texts.append(target_llama.generate(PROMPT, custom_generate=ddte_generate, **settings).tolist())
        kept.append([(path, path.stat().st_mtime_ns) for path in (tmp_path / "cache" / "profiles").iterdir()])
    assert texts[0] == texts[1]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 1
    with pytest.warns(UserWarning, match="the checkpoint has pass times of another kind"):
        target_llama.generate(PROMPT, custom_generate=ddte_generate, profile="checkpoint", **settings)


def test_a_models_own_settings_count(draft_llama: LlamaForCausalLM) -> None:
    target = tiny_llama()
    target.generation_config.repetition_penalty = 1.3
    with pytest.raises(UserError, match=r"repetition_penalty is 1.3.*give repetition_penalty=1.0"):
        target.generate(PROMPT, **TREE, draft=draft_llama, max_new_tokens=5)
    target.generate(PROMPT, **TREE, draft=draft_llama, max_new_tokens=5, repetition_penalty=1.0)
