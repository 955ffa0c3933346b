"""The laws that training sees are those that drafting makes: at every depth, for every architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen3Config

from data_gen.distillation.batch_passes import BatchPasses
from data_gen.distillation.losses import acceptance, log_acceptance, target_law
from data_gen.distillation.repeats import KEPT, MATCH, kept_length
from data_gen.distillation.sampling import Turns, sample_batch
from data_gen.distillation.shards import before, row_batch
from data_gen.distillation.training import DraftTraining
from data_gen.distillation.unrolled import unrolled_logits
from selector.config import DistillConfig
from selector.engine.early_exit import build_early_exit, load_draft, save_draft, start_from, trained_parameters
from selector.errors import UserError

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256,
}  # fmt: skip
TARGETS = {
    "llama, tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "qwen3, untied": Qwen3Config(**SIZES, tie_word_embeddings=False),
    "gemma3, windows": Gemma3TextConfig(
        **SIZES, sliding_window=8, layer_types=["sliding_attention", "sliding_attention", "full_attention"]
    ),
}  # fmt: skip
HEAD = torch.arange(0, 64, 2)


def target_of(kind: str) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(TARGETS[kind], attn_implementation="sdpa").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8.0)
    return model


def sampled(target: Any, seed: int = 0) -> dict[str, Tensor]:
    prompts = [[5, 6, 7], [8], [9, 10, 11, 12], [13, 14]]
    batch = sample_batch(
        BatchPasses(target), prompts, torch.ones(4, dtype=torch.bool), torch.ones(4, 2), new_tokens=40, top_tokens=64,
        turns=Turns((), ()), generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    return batch | {"tasks": torch.zeros(4, dtype=torch.long)}


@pytest.mark.parametrize("kind", TARGETS)
def test_sampled_laws_are_the_models_own(kind: str) -> None:
    target = target_of(kind)
    batch = sampled(target)
    width = batch["prompt_mask"].shape[1]
    for row, mask in enumerate(batch["prompt_mask"]):
        first, count = int((~mask).sum()), int(batch["loss_mask"][row].sum())
        tokens = batch["tokens"][row, first : width + count].long()
        law = target(tokens[None]).logits[0, width - first - 1 : -1].log_softmax(-1)
        ids, logprobs = batch["top_ids"][row, :count].long(), batch["top_logprobs"][row, :count].float()
        torch.testing.assert_close(logprobs, law.gather(1, ids), atol=2e-2, rtol=5e-3)


@pytest.mark.parametrize("kind", ["llama, tied", "qwen3, untied"])
def test_unrolled_laws_are_those_of_drafting(kind: str) -> None:
    """At depth 3 the last two tokens read the draft's own states, and all before them the target's."""
    target = target_of(kind)
    draft = build_early_exit(target, [0, 2], HEAD, "target")
    batch = row_batch(sampled(target), torch.tensor([2]))
    base: Any = draft.base_model
    embedded = base.embed_tokens(batch.tokens)
    with torch.no_grad():
        unrolled = unrolled_logits(draft, batch, 3)
        for end in (batch.start + 1, batch.start + 9):
            states = batch.states[:, : end + 1].float().clone()
            for depth in range(3):  # position `end - 2 + depth` reads what the pass before it made
                inputs = base.fuse(embedded[:, : end + 1], states)
                hidden = base(inputs_embeds=inputs[:, : end - 1 + depth]).last_hidden_state
                logits = draft.lm_head(hidden[0, -1])
                place = end - 2 + depth - batch.start
                if place >= 0:
                    torch.testing.assert_close(unrolled[depth][place], logits, atol=1e-3, rtol=1e-3)
                if depth < 2:
                    states[:, end - 1 + depth] = hidden[:, -1]


def test_states_stand_at_the_token_after_theirs() -> None:
    states, mask = torch.arange(8.0).view(1, 4, 2), torch.tensor([[False, True, True, True]])
    assert before(states, mask)[0].tolist() == [[0, 0], [0, 0], [2, 3], [4, 5]]


def test_gradients_are_those_of_the_plain_formula() -> None:
    torch.manual_seed(0)
    logits = torch.randn(40, 50, requires_grad=True)
    columns = torch.stack([torch.randperm(50)[:7] for _ in range(40)])
    columns[3, 2], columns[10] = -1, -1
    top, temperature = torch.randn(40, 7).log_softmax(-1), 0.2 + torch.rand(40)
    probs = (logits / temperature[:, None]).softmax(-1).gather(1, columns.clamp(min=0)) * (columns >= 0)
    plain = -torch.minimum(target_law(top, temperature), probs).sum(-1).clamp(min=1e-4).log().mean()
    ours = log_acceptance(logits, columns, top, temperature)
    assert float(ours.detach()) == pytest.approx(float(plain.detach()), rel=1e-5)
    torch.testing.assert_close(torch.autograd.grad(ours, logits), torch.autograd.grad(plain, logits))


@pytest.mark.parametrize("reads", ["tokens", "target"])
@pytest.mark.parametrize("kind", TARGETS)
def test_any_target_gets_a_draft_that_accepts_more(kind: str, reads: Any, tmp_path: Path) -> None:
    target = target_of(kind)
    shards = [tmp_path / f"{seed}.safetensors" for seed in range(2)]
    for seed, shard in enumerate(shards):
        save_file(sampled(target, seed), shard)
    config = DistillConfig(layers=[0, 2], reads=reads, epochs=12, total_variation_epochs=8, learning_rate=5e-3)
    training = DraftTraining(build_early_exit(target, [0, 2], HEAD, reads), HEAD, shards, config, shards[:1])
    start = training.acceptance(shards[:1])
    rows: list[dict[str, Any]] = []
    training.run(tmp_path / "state.pt", rows.append)
    end = rows[-1]["acceptance"]
    assert {row["depth"] for row in end} == ({1, 2, 3} if reads == "target" else {1})
    rates = [{(row["depth"], row["temperature"]): row["acceptance"] for row in measured} for measured in (start, end)]
    assert rates[1][1, 1.0] > rates[0][1, 1.0] + 0.02
    save_draft(training.draft, tmp_path / "draft", layers=[0, 2], head_tokens=HEAD, info={})
    loaded, _ = load_draft(tmp_path / "draft", target)
    batch = row_batch(sampled(target), torch.arange(4))
    for ours, theirs in zip(*(unrolled_logits(draft, batch, 2) for draft in (training.draft, loaded)), strict=True):
        one = torch.ones(len(ours))
        ids, top = batch.top_ids[batch.loss_mask], batch.top_logprobs[batch.loss_mask]
        columns = torch.where(ids % 2 == 0, ids // 2, -1)
        rates_of = [float(acceptance(logits, columns, top, one).mean()) for logits in (ours, theirs)]
        assert rates_of[1] == pytest.approx(rates_of[0], abs=0.03), "8-bit weights"


@pytest.mark.parametrize("reads", ["tokens", "target"])
@pytest.mark.parametrize("kind", TARGETS)
def test_a_draft_starts_from_a_stored_one(kind: str, reads: Any, tmp_path: Path) -> None:
    """It has the stored one's laws, whether or not it reads more."""
    target = target_of(kind)
    stored = build_early_exit(target, [0, 1], HEAD)
    with torch.no_grad():
        for parameter in trained_parameters(stored).values():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    save_draft(stored, tmp_path, layers=[0, 1], head_tokens=HEAD, info={})
    draft, batch = build_early_exit(target, [0, 1], HEAD, reads), row_batch(sampled(target), torch.arange(4))
    start_from(draft, tmp_path, target)
    expected = unrolled_logits(load_draft(tmp_path, target)[0], batch, 1)[0]
    for logits in unrolled_logits(draft, batch, 3):
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(UserError, match=r"distill\.start .* has layers \[0, 1\] and other weights"):
        start_from(build_early_exit(target, [0], HEAD), tmp_path, target)


def test_training_that_diverges_is_one_sentence(tmp_path: Path) -> None:
    target = target_of("llama, tied")
    save_file(sampled(target), tmp_path / "0.safetensors")
    config = DistillConfig(layers=[0], epochs=2, learning_rate=1e38)
    training = DraftTraining(build_early_exit(target, [0], HEAD), HEAD, [tmp_path / "0.safetensors"], config)
    with pytest.raises(UserError, match=r"^distill\.learning_rate is 1e\+38: training diverged"):
        training.run(tmp_path / "state.pt", lambda row: None)
    kept = torch.load(tmp_path / "state.pt", weights_only=True)["weights"].values()
    assert all(bool(weight.isfinite().all()) for weight in kept), "what diverged is not kept"


def test_text_is_cut_where_it_only_repeats_itself() -> None:
    new, loop = list(range(100, 140)), list(range(7))
    assert kept_length(new) == len(new)
    assert kept_length(new + loop * 9) == len(new) + len(loop) + MATCH - 1 + KEPT
    assert kept_length(loop * 2) == len(loop * 2), "a short passage may come twice"


def test_turns_end_where_the_template_closes_them() -> None:
    turns = Turns(closing=(3, 4), ends=(1, 2))
    tokens = torch.tensor([[9, 3, 4], [9, 9, 4], [9, 9, 1], [3, 3, 4], [9, 9, 2]], dtype=torch.int32)
    assert turns.left(torch.tensor([2, 2, 2, 1, 1]), tokens).tolist() == [1, 2, 0, 1, 0]
