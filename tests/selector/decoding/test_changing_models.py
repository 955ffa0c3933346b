"""A model that changes between two calls: the unbound call answers for what it is now, a decoder after `refresh`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from selector.config import PairConfig
from selector.decoding.custom_generate import ddte_generate
from selector.decoding.decoder import Decoder
from selector.decoding.stopping import Stopping
from selector.distributions import Sampling
from selector.engine.huggingface import pair_with
from selector.errors import UserError
from tests.support.tiny_models import disturbed, tiny_llama, tiny_model

PROMPT = torch.tensor([[3, 4, 5]])
TREE = (2, 1, 2)


def plain(target: Any) -> list[int]:
    return target.generate(PROMPT, max_new_tokens=16)[0, 3:].tolist()


def unbound(target: Any, draft: Any) -> list[int]:
    output = target.generate(PROMPT, max_new_tokens=16, custom_generate=ddte_generate, draft=draft, expansion=TREE)
    return output[0, 3:].tolist()


def decoder_of(target: Any, draft: Any, pack: bool = True) -> Decoder:
    return Decoder(pair_with(target, None, PairConfig(), draft, pack), "traversal", TREE)


def bound(target: Any, decoder: Decoder) -> list[int]:
    call = partial(ddte_generate, decoder=decoder)
    return target.generate(PROMPT, max_new_tokens=16, custom_generate=call)[0, 3:].tolist()


def fused_step(target: Any) -> None:
    optimizer = torch.optim.AdamW(target.parameters(), lr=0.3, fused=True)
    target(PROMPT, labels=PROMPT).loss.backward()
    optimizer.step()


def data(target: Any) -> None:
    target.lm_head.weight.data.mul_(-1)


def numpy_view(target: Any) -> None:
    target.lm_head.weight.detach().numpy()[:] *= -1


def replaced_weight(target: Any) -> None:
    target.lm_head.weight = nn.Parameter(-target.lm_head.weight.detach())


def replaced_layer(target: Any) -> None:
    target.model.layers[1].mlp.down_proj = nn.Linear(48, 32)


def frequencies(target: Any) -> None:
    target.model.rotary_emb.inv_freq = torch.full_like(target.model.rotary_emb.inv_freq, 2.0)


def hook(target: Any) -> None:
    target.model.layers[0].register_forward_hook(lambda _, inputs, output: -output)


def pre_hook(target: Any) -> None:
    target.lm_head.register_forward_pre_hook(lambda _, inputs: (-inputs[0],))


def own_forward(target: Any) -> None:
    head = target.lm_head
    head.forward = lambda states: -nn.functional.linear(states, head.weight)


CHANGES = [fused_step, data, numpy_view, replaced_weight, replaced_layer, frequencies, hook, pre_hook, own_forward]


def check(target: Any, draft: Any, change: Callable[[Any], Any]) -> None:
    decoder = decoder_of(target, draft)
    before = plain(target)
    assert unbound(target, draft) == bound(target, decoder) == before
    assert decoder.pair.target.snapshot
    change(target)
    after = plain(target)
    assert after != before, "the change must be one"
    assert unbound(target, draft) == after
    assert bound(target, decoder) == before, "a snapshot"
    decoder.refresh()
    assert bound(target, decoder) == after


@pytest.mark.parametrize("change", CHANGES)
def test_changes(change: Callable[[Any], Any]) -> None:
    target = tiny_llama()
    check(target, disturbed(target, 0.1), change)


def test_weights_written_in_inference_mode() -> None:
    with torch.inference_mode():
        target = tiny_llama()

        def write(model: Any) -> None:
            with torch.inference_mode():
                model.lm_head.weight.mul_(-1)

        check(target, tiny_llama(1), write)


def test_a_hook_that_is_removed() -> None:
    """Where somebody listens nothing is packed, so the decoder follows at once."""
    target = tiny_llama()
    handle = target.model.layers[0].register_forward_hook(lambda _, inputs, output: -output)
    draft, heard = tiny_llama(1), plain(target)
    decoder = decoder_of(target, draft)
    assert unbound(target, draft) == bound(target, decoder) == heard
    assert not decoder.pair.target.snapshot
    handle.remove()
    assert unbound(target, draft) == bound(target, decoder) == plain(target) != heard


def test_a_hook_on_all_modules() -> None:
    target = tiny_llama()
    draft, before = tiny_llama(1), plain(target)

    def negate(module: nn.Module, _: Any, output: Any) -> Any:
        return -output if isinstance(module, nn.Linear) and module.out_features == 48 else output

    handle = nn.modules.module.register_module_forward_hook(negate)
    try:
        assert unbound(target, draft) == bound(target, decoder_of(target, draft)) == plain(target) != before
    finally:
        handle.remove()


def test_a_hook_hears_every_pass() -> None:
    """And keeps what it hears at the user's own object."""
    heard: list[int] = []
    target = tiny_llama()
    target.model.layers[0].register_forward_hook(lambda *_: heard.append(1))
    unbound(target, tiny_llama(1))
    assert len(heard) > 3


def test_adapters() -> None:
    base = tiny_llama()
    draft = disturbed(base, 0.1)
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    target = get_peft_model(base, lora, adapter_name="a")
    target.add_adapter("b", lora)
    target.eval()
    decoder = decoder_of(target.get_base_model(), draft)
    texts: list[list[int]] = []

    def compare() -> None:
        texts.append(target.generate(input_ids=PROMPT, max_new_tokens=16)[0, 3:].tolist())
        call = partial(target.generate, input_ids=PROMPT, max_new_tokens=16)
        output = call(custom_generate=ddte_generate, draft=draft, expansion=TREE)
        decoder.refresh()
        assert output[0, 3:].tolist() == texts[-1]
        assert call(custom_generate=partial(ddte_generate, decoder=decoder))[0, 3:].tolist() == texts[-1]

    compare()
    target.set_adapter("b")
    compare()
    with target.disable_adapter():
        compare()
    target.set_adapter("a")
    compare()
    target.merge_adapter()
    compare()
    assert len({tuple(text) for text in texts[:3]}) == 3
    assert texts[3] == texts[0]


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


class Raising:
    def put(self, _: Tensor) -> None:
        raise RuntimeError("no more")

    def end(self) -> None: ...


@pytest.mark.parametrize("pack", [True, False])
def test_each_module_keeps_its_mode(pack: bool) -> None:
    """Passes are in evaluation mode, without dropout; afterwards every module is as it was, also after an error."""
    target = tiny_llama(attention_dropout=0.5)
    draft, expected = tiny_llama(1), plain(target)
    target.train()
    target.model.layers[0].eval()
    mixed = modes(target)
    decoder = decoder_of(target, draft, pack)
    assert modes(target) == mixed
    assert unbound(target, draft) == bound(target, decoder) == expected
    assert modes(target) == mixed
    for given in ({"draft": draft, "expansion": TREE}, {"decoder": decoder}):
        call = partial(ddte_generate, streamer=Raising(), **given)
        with pytest.raises(RuntimeError, match="no more"):
            target.generate(PROMPT, max_new_tokens=16, custom_generate=call)
        assert modes(target) == mixed
    sampling, stopping = Sampling(0.0), Stopping(16, (), (), str)
    next(decoder.steps([3, 4, 5], stopping, sampling, 0))
    assert modes(target) == mixed, "between two steps of a stream"


@pytest.mark.parametrize(
    ("training", "pack", "writes"), [(False, False, 0), (False, True, 0), (True, True, 0), (True, False, 1)]
)
def test_whose_mode_is_switched(training: bool, pack: bool, writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a live model's that trains: another thread would see it."""
    target = tiny_llama()
    decoder = decoder_of(target.train(training), tiny_llama(1), pack)
    own, written = set(target.modules()), []
    switch = nn.Module.__setattr__

    def heard(module: nn.Module, name: str, value: Any) -> None:
        if name == "training" and module in own:
            written.append(value)
        switch(module, name, value)

    monkeypatch.setattr(nn.Module, "__setattr__", heard)
    next(decoder.steps([3, 4, 5], Stopping(16, (), (), str), Sampling(0.0), 0))
    assert (len(written) > 0) == writes


def test_autocast() -> None:
    target = tiny_llama()
    draft = disturbed(target, 0.1)
    decoder = decoder_of(target, draft)
    exact = [unbound(target, draft), bound(target, decoder)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = plain(target)
        assert unbound(target, draft) == bound(target, decoder) == rounded
        assert bound(target, decoder_of(target, draft)) == rounded
    assert [unbound(target, draft), bound(target, decoder)] == exact == [plain(target)] * 2


@pytest.mark.parametrize("architecture", ["Llama", "Gemma 2"])
@pytest.mark.parametrize("pack", [True, False])
def test_a_decoder_built_in_autocast(pack: bool, architecture: str) -> None:
    """It is the one that is built outside."""
    target = tiny_model(architecture, scale=3.0)
    outside = decoder_of(target, disturbed(target, 0.1), pack)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        decoder = decoder_of(target, disturbed(target, 0.1), pack)
        assert bound(target, decoder) == bound(target, outside)
    assert bound(target, decoder) == plain(target)


@pytest.mark.parametrize("kind", ["half", "bfloat16", "double"])
def test_another_dtype(kind: str) -> None:
    """A packed decoder is a snapshot; any other asks for `refresh`."""
    target = tiny_llama()
    draft, before = disturbed(target, 0.1), plain(target)
    packed, live = decoder_of(target, draft), decoder_of(target, draft, pack=False)
    getattr(target, kind)()
    getattr(draft, kind)()
    assert bound(target, packed) == before, "a snapshot"
    with pytest.raises(UserError, match=r"call refresh\(\)"):
        bound(target, live)
    for decoder in (packed, live):
        decoder.refresh()
        built = decoder_of(target, draft, decoder is packed)
        assert bound(target, decoder) == bound(target, built), "rounded alike, which plain generate is not"


@pytest.mark.parametrize("backend", ["eager", "flex_attention"])
def test_another_attention_backend(backend: str) -> None:
    target = tiny_llama()
    draft, before = disturbed(target, 0.1), plain(target)
    packed, live = decoder_of(target, draft), decoder_of(target, draft, pack=False)
    target.set_attn_implementation(backend)
    assert bound(target, packed) == before, "a snapshot"
    with pytest.raises(UserError, match=r"call refresh\(\)"):
        bound(target, live)
    assert target.config._attn_implementation == backend
    if backend == "eager":
        live.refresh()
        assert bound(target, live) == before
    else:
        with pytest.raises(UserError, match="attention backend"):
            live.refresh()


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state(True)


def test_mixed_precision_of_accelerate(accelerator: Accelerator) -> None:
    """Trainer's, too: the model gets a `forward` of its own."""
    target = tiny_llama()
    draft = disturbed(target, 0.1)
    prepared = accelerator.prepare(target)
    assert "forward" in vars(prepared)
    decoder = decoder_of(prepared, draft)
    assert not decoder.pair.target.snapshot
    assert unbound(prepared, draft) == bound(prepared, decoder) == plain(prepared)


@pytest.mark.parametrize("own", [True, False])
def test_nothing_stays_at_the_model(own: bool) -> None:
    target, draft = tiny_llama(), tiny_llama(1)
    decoder = decoder_of(target, draft) if own else None
    names = [(name, set(vars(module))) for name, module in target.named_modules()]
    hooks = [len(module._forward_pre_hooks) for module in target.modules()]
    config = target.config.to_dict(), target.config._attn_implementation
    for _ in range(2):
        bound(target, decoder) if decoder else unbound(target, draft)
    assert names == [(name, set(vars(module))) for name, module in target.named_modules()]
    assert hooks == [len(module._forward_pre_hooks) for module in target.modules()]
    assert config == (target.config.to_dict(), target.config._attn_implementation)


def test_threads_that_share_a_model() -> None:
    target = tiny_llama()
    draft, expected = disturbed(target, 0.1), plain(target)
    with ThreadPoolExecutor(2) as threads:
        texts = [text.result() for text in [threads.submit(unbound, target, draft) for _ in range(12)]]
    assert texts == [expected] * 12
