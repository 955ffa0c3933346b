"""An early-exit draft shares the target's embedding and head, and its folder holds only what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from selector.engine.early_exit import build_early_exit, is_early_exit, load_draft, save_draft, trained_parameters
from selector.engine.huggingface import HuggingFaceModel
from selector.errors import UserError
from tests.support.tiny_models import tiny_llama

TOKENS = torch.arange(1, 64, 3)


def test_all_layers_and_the_whole_head_are_the_target() -> None:
    target = tiny_llama(layers=3)
    draft = build_early_exit(target, [0, 1, 2], None)
    ids = torch.randint(64, (1, 9))
    assert torch.equal(draft(ids).logits, target(ids).logits)


def test_reduced_head_has_the_rows_of_its_tokens() -> None:
    target = tiny_llama(layers=3)
    ids = torch.randint(64, (1, 9))
    whole = build_early_exit(target, [0, 2], None)(ids).logits
    reduced = build_early_exit(target, [0, 2], TOKENS)(ids).logits
    torch.testing.assert_close(reduced, whole[..., TOKENS])


def test_cached_decoding_equals_one_pass() -> None:
    """Layers taken from the target's end must use their own place in the draft's cache."""
    target = tiny_llama(layers=4)
    draft = HuggingFaceModel(build_early_exit(target, [0, 3], TOKENS), TOKENS)
    ids = torch.randint(64, (7,))
    once = draft.extend(ids, range(-1, 6)).logits
    draft.reset()
    rows = []
    for token in ids:
        rows.append(draft.extend(token[None], [-1]).logits)
        draft.keep([0])
    torch.testing.assert_close(torch.cat(rows), once, atol=1e-5, rtol=1e-5)


def test_round_trip_stores_only_what_differs(tmp_path: Path) -> None:
    target = tiny_llama(layers=3)
    draft = build_early_exit(target, [0, 2], TOKENS)
    with torch.no_grad():
        for parameter in trained_parameters(draft).values():
            parameter.add_(0.1)
    save_draft(draft, tmp_path, layers=[0, 2], head_tokens=TOKENS, info={})
    assert is_early_exit(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert {name.removesuffix(".scale") for name in stored} == {*trained_parameters(draft), "head_tokens"}
    assert sum(value.numel() * value.element_size() for value in stored.values()) < 60_000
    loaded, tokens = load_draft(tmp_path, target)
    assert tokens is not None
    assert tokens.tolist() == TOKENS.tolist()
    for name, parameter in trained_parameters(draft).items():
        rounding = parameter.abs().amax(-1, keepdim=True) / 254 if parameter.dim() == 2 else torch.zeros(())
        assert bool(((trained_parameters(loaded)[name] - parameter).abs() <= rounding * 1.001).all()), name


def test_refusals(tmp_path: Path) -> None:
    target = tiny_llama(layers=3)
    with pytest.raises(UserError, match="layers is"):
        build_early_exit(target, [3], None)
    save_draft(build_early_exit(target, [0], TOKENS), tmp_path, layers=[0], head_tokens=TOKENS, info={})
    with pytest.raises(UserError, match="vocabulary of 32"):
        load_draft(tmp_path, tiny_llama(layers=3, vocab=32))
    with pytest.raises(UserError, match="layer shapes"):
        load_draft(tmp_path, tiny_llama(layers=3, intermediate_size=64))


def rewritten(folder: Path, **tensors: torch.Tensor) -> None:
    save_file(load_file(folder / "model.safetensors") | tensors, folder / "model.safetensors")


@pytest.mark.parametrize("tokens", [[3, 3, 5], [5, 3], [-1, 3], [[3], [5]], []])
def test_head_tokens_that_are_no_ascending_list_are_refused(tmp_path: Path, tokens: list[int]) -> None:
    """A column a token: where two columns are one token, the draft's law has a part that no token shows."""
    target = tiny_llama(layers=3)
    save_draft(build_early_exit(target, [0], TOKENS), tmp_path, layers=[0], head_tokens=TOKENS, info={})
    rewritten(tmp_path, head_tokens=torch.tensor(tokens, dtype=torch.int32))
    with pytest.raises(UserError, match="head_tokens that repeat or do not ascend"):
        load_draft(tmp_path, target)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    target = tiny_llama(layers=3)
    save_draft(build_early_exit(target, [0], TOKENS), tmp_path, layers=[0], head_tokens=TOKENS, info={})
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        if tensor.is_floating_point():
            spoiled = tensor.clone()
            spoiled.view(-1)[-1] = value
            rewritten(tmp_path, **{name: spoiled})
            with pytest.raises(UserError, match=rf"{name} holds NaN or infinity"):
                load_draft(tmp_path, target)
            rewritten(tmp_path, **{name: tensor})
    load_draft(tmp_path, target)
