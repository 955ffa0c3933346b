"""Importing and using the package changes nothing in other packages."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import pkgutil, importlib, sys
import torch, transformers
from transformers import AttentionInterface, GenerationMixin, LlamaForCausalLM
from transformers.masking_utils import AttentionMaskInterface

def attributes():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in ("transformers", "accelerate", "tokenizers", "safetensors"):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, type(sys)):
                continue  # a submodule, which the import of it sets
            found[name, key] = id(value)
            if isinstance(value, type) and value.__module__ == name:
                found |= {(name, key, inner): id(method) for inner, method in list(vars(value).items())}
    return found

def registered():
    return [dict(registry._global_mapping) for registry in (AttentionInterface, AttentionMaskInterface)]

assert "selector" not in sys.modules
kept, before, registry = list(sys.modules.values()), attributes(), registered()
import selector
for module in pkgutil.walk_packages(selector.__path__, "selector."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from selector.decoding.custom_generate import ddte_generate
from tests.support.tiny_models import tiny_llama
model = tiny_llama()
tree = {"custom_generate": ddte_generate, "draft": model, "expansion": (2, 1, 2)}
model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=9, **tree)
after = attributes()
changed = [key for key in before if key in after and after[key] != before[key]]
assert not changed, changed[:5]
for old, new in zip(registry, registered()):  # one entry, by transformers' own call for it
    assert {key: new[key] for key in old} == old
    assert new.keys() - old.keys() == {"ddte_grouped_rows"}
"""


def test_other_packages_stay_as_they_are() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
