"""The notebook in `examples/`, run cell by cell on two tiny models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from selector.artifacts.writing import as_json
from selector.config import ActionSpaceConfig, EvaluateConfig, TrainConfig
from tests.support.disk_pair import disk_config

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
VERIFIERS = ["nss", "traversal"]


def cells(notebook: Path) -> list[dict[str, Any]]:
    """The cells of code."""
    content = json.loads(notebook.read_text("utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def run(notebook: Path, parameters: dict[str, str]) -> dict[str, Any]:
    """The names that the notebook has made, with other values in its cell of parameters."""
    names: dict[str, Any] = {}
    for cell in cells(notebook):
        source = "".join(cell["source"])
        exec(compile(source, f"{notebook.name}:{cell['id']}", "exec"), names)
        if cell["metadata"].get("tags") == ["parameters"]:
            assert parameters.keys() <= names.keys()
            names.update(parameters)
    return names


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: str(path.stem))
def test_notebooks_run_and_run_again(
    notebook: Path, tmp_path: Path, prompt_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(
        disk_config(tmp_path / "models", prompt_file, verifiers=VERIFIERS, settings=[(0.6, 1.0), (1.0, 0.9)]),
        action_space=ActionSpaceConfig(2, 1, 1),
        train=TrainConfig(VERIFIERS, hidden_sizes=(8, 4), max_epochs=1),
        evaluate=EvaluateConfig(bootstrap=20, study=False),
    )
    file = tmp_path / "pair.yaml"
    file.write_text(json.dumps(as_json(config)))
    parameters = {"CONFIG": str(file), "OUT": str(tmp_path / "out"), "PROMPT": "w7 w3 w11"}
    names = run(notebook, parameters)
    report = (tmp_path / "out" / "report" / "report.html").stat()
    assert names["stats"].tokens > 0
    assert names["checkpoint"].config.verifier == VERIFIERS[-1]
    assert {row["verifier"] for row in names["rows"]} == {*VERIFIERS}
    assert str(tmp_path / "out" / "report" / "report.html") in capsys.readouterr().out
    run(notebook, parameters)
    assert (tmp_path / "out" / "report" / "report.html").stat().st_mtime_ns == report.st_mtime_ns


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: str(path.stem))
def test_notebooks_are_stored_without_output(notebook: Path) -> None:
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells(notebook))


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
