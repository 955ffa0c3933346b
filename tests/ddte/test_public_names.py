"""The package `ddte`: instant to import, complete for type checkers, and documented by examples that fit."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import ddte
from ddte.configuration import load_config
from selector.errors import UserError

ROOT = Path(__file__).parents[2]
DOCUMENTED = [
    "Decoder", "Expansion", "Sampling", "SelectorCheckpoint", "ddte_generate", "evaluate", "export", "generate_data",
    "load_config", "load_pair", "measure_profile", "pair_with", "train", "verify",
]  # fmt: skip
RUNNABLE = ["Expansion", "Sampling", "SelectorCheckpoint", "load_config"]


def test_importing_loads_no_heavy_library() -> None:
    program = (
        "import sys, ddte\n"
        "heavy = {'torch', 'transformers', 'pytorch_lightning', 'jsonargparse', 'numpy', 'selector', 'data_gen'}\n"
        "assert set(ddte.__all__) <= set(dir(ddte))\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "ddte.PairConfig\n"
        "assert 'torch' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_name_is_there_and_an_unknown_one_is_not() -> None:
    assert sorted(ddte.__all__) == sorted([*ddte.PLACES, "__version__"])
    for name in ddte.PLACES:
        assert getattr(ddte, name) is not None
    assert ddte.__version__ == metadata.version("ddte")
    with pytest.raises(AttributeError, match="decoder"):
        _ = ddte.decoder  # type: ignore[attr-defined]


def test_type_checkers_see_what_is_imported() -> None:
    """The imports for type checkers name the very objects that are handed out."""
    tree = ast.parse(inspect.getsource(ddte))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == ddte.PLACES


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documentation_names_every_argument(name: str) -> None:
    text = inspect.getdoc(getattr(ddte, name)) or ""
    parts = re.split(r"^(Args|Returns|Raises|Example):\n", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(sections) == ["Args", "Returns", "Raises", "Example"]
    described = re.findall(r"^ {4}([\w, ]+):", sections["Args"], flags=re.MULTILINE)
    arguments = [argument for entry in described for argument in entry.split(", ")]
    assert arguments == list(inspect.signature(getattr(ddte, name)).parameters)


def calls(name: str) -> list[tuple[Any, ast.Call]]:
    """The calls of public names in an example, each with what is called."""
    found = []
    for example in doctest.DocTestParser().get_examples(inspect.getdoc(getattr(ddte, name)) or ""):
        for node in ast.walk(ast.parse(example.source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("ddte."):
                called: Any = ddte
                for part in ast.unparse(node.func).split(".")[1:]:
                    if "(" in part:
                        break
                    called = getattr(called, part)
                else:
                    found.append((called, node))
    return found


@pytest.mark.parametrize("name", DOCUMENTED)
def test_examples_fit_the_signatures(name: str) -> None:
    found = calls(name)
    assert found or name == "ddte_generate"
    for called, node in found:
        keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        inspect.signature(called).bind(*node.args, **keywords)


@pytest.mark.parametrize("name", RUNNABLE)
def test_examples_that_need_no_models_give_what_they_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = inspect.getdoc(getattr(ddte, name)) or ""
    test = doctest.DocTestParser().get_doctest(text, {"ddte": ddte}, name, None, None)
    assert doctest.DocTestRunner().run(test).failed == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pair:\n  targett: x\n", "targett"),
        ("train:\n  dropout: 3\n", "train.dropout is 3.0"),
        ("train:\n  dropout: much\n", "train.dropout"),
        ("train:\n  seed: 1\n  seed: 2\n", "given twice"),
        ("[1]", "no sections"),
        ("", "no sections"),
        ("train: [", "train"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(words)):
        load_config(path)
    with pytest.raises(UserError, match="absent"):
        load_config(tmp_path / "absent.yaml")
