"""Every verb that writes, killed or on a full disk at each of its writes: the same call again makes the same."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from safetensors.torch import save_file

from data_gen.distillation import pipeline as distillation
from data_gen.merging import merge
from data_gen.pipeline import generate
from selector.artifacts.claims import sole_writer
from selector.cli.run import claim
from selector.config import DistillConfig, TrainConfig
from selector.dataset.manifest import Manifest
from selector.engine import embedded
from selector.errors import UserError
from selector.training import fit
from selector.training.export import export
from tests.conftest import tiny_llama
from tests.data_gen.distillation.test_distillation import sampled
from tests.selector.cli.test_batch_decode import answer_all, prompts_file
from tests.support.disk_pair import rows
from tests.support.faults import Kind, survives_every_fault
from tests.support.profiles import COSTLY_DRAFT
from tests.support.small_runs import small_config, table_pair
from tests.support.synthetic_data import CONFIG, write_dataset

QUIET = Console(file=io.StringIO())
KINDS: tuple[Kind, ...] = ("kill", "full")
KILL_OFTEN = [pytest.param("kill", marks=pytest.mark.slow), "full"]  # many writes, or each run takes long


def files(folder: Path) -> dict[str, bytes]:
    """All files below `folder` by their names."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def two_prompts(folder: Path, first: int = 0) -> str:
    turns = [[{"role": "user", "content": f"text {number}"}] for number in range(first, first + 2)]
    lines = [{"id": f"p{first + place}", "task": "t", "messages": turn} for place, turn in enumerate(turns)]
    path = folder / f"prompts-{first}.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


@pytest.mark.parametrize("kind", KINDS)
def test_generate(tmp_path: Path, kind: Kind) -> None:
    config = small_config([two_prompts(tmp_path)], verifiers=["naive"], max_new_tokens=3)

    def read(place: Path) -> Any:
        manifest = Manifest.load(place / "new" / "data")
        return manifest.complete, [unit.id for unit in manifest.units], rows(place / "new" / "data")

    survives_every_fault(
        tmp_path, kind, lambda place: generate(config, place / "new" / "data", table_pair(), QUIET), read, 12
    )


@pytest.mark.parametrize("kind", KILL_OFTEN)
def test_merge(tmp_path: Path, kind: Kind) -> None:
    sources = []
    for first in (0, 2):
        config = small_config([two_prompts(tmp_path, first)], verifiers=["naive"], max_new_tokens=3)
        sources.append(tmp_path / f"source-{first}")
        generate(config, sources[-1], table_pair(), QUIET)
    survives_every_fault(tmp_path, kind, lambda place: merge(sources, place / "data", QUIET), files, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_start_of_train(tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning's own writes follow; see `test_fit` for runs that end in the midst of them."""
    write_dataset(tmp_path / "data", prompts=12, roots=2)
    monkeypatch.setattr(fit, "_train_left", lambda *arguments: None)
    monkeypatch.setattr(fit, "print_results", lambda *arguments: None)
    config = replace(CONFIG, verifiers=["naive"])

    def run(place: Path) -> object:
        try:
            return fit.train(tmp_path / "data", COSTLY_DRAFT, config, place / "run", QUIET)
        except UserError as error:
            if "has not ended" in str(error):
                return None
            raise

    survives_every_fault(tmp_path, kind, run, files, 5)


@pytest.mark.parametrize("kind", KILL_OFTEN)
def test_export(tmp_path: Path, kind: Kind) -> None:
    write_dataset(tmp_path / "data", prompts=12, roots=2, verifiers=("naive", "nss"))
    config = replace(CONFIG, verifiers=["naive", "nss"], max_epochs=1)
    fit.train(tmp_path / "data", COSTLY_DRAFT, config, tmp_path / "run", QUIET)
    survives_every_fault(tmp_path, kind, lambda place: export(tmp_path / "run", place / "out"), files, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_decode(tmp_path: Path, kind: Kind) -> None:
    source = prompts_file(tmp_path, a="one two", b="three")

    def read(place: Path) -> Any:
        found = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
        return [(row["id"], row["tokens"], row["text"]) for row in found]

    survives_every_fault(tmp_path, kind, lambda place: answer_all(source, place / "out.jsonl"), read, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_start_of_run(tmp_path: Path, kind: Kind) -> None:
    config = small_config([two_prompts(tmp_path)])
    config = replace(config, train=TrainConfig(verifiers=["nss"]))

    def run(place: Path) -> None:
        with sole_writer("out", place / "run"):
            claim(config, place / "run")

    survives_every_fault(tmp_path, kind, run, files, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_distill(tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the sampled text on; measuring, which loads the target again, gives a fixed row."""
    config = small_config([two_prompts(tmp_path)])
    settings = DistillConfig(
        layers=[0, 2], head_tokens=48, top_tokens=16, token_budget=60, holdout_tokens=1, epochs=1,
        total_variation_epochs=0, batch_size=4,
    )  # fmt: skip
    texts = []
    for seed in range(2):
        texts.append((tmp_path / f"text-{seed}.safetensors", 40))
        save_file(sampled(seed), texts[-1][0])
    row = {"temperature": 1.0, "task": "t", "depth": 1, "acceptance": 0.5, "half_width": 0.1, "prompts": 2}
    monkeypatch.setattr(distillation, "load_target", lambda pair: (tiny_llama(layers=3, scale=1.0), None))
    monkeypatch.setattr(distillation, "_sample", lambda *arguments: texts)
    monkeypatch.setattr(distillation, "measure_draft", lambda folder, config: [row])
    monkeypatch.setattr(distillation, "console", QUIET)

    def run(place: Path) -> None:
        distillation.distill(replace(config, distill=settings), place / "draft", place / "work")

    survives_every_fault(tmp_path, kind, run, lambda place: files(place / "draft"), 12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_embedded_target(tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed unpacking leaves is removed by the next."""

    def convert(source: Path, folder: Path) -> None:
        for name in ("config.json", "model.safetensors"):
            (folder / name).write_text(name)

    monkeypatch.setattr(embedded, "find_gguf", lambda: tmp_path / "x.gguf")
    monkeypatch.setattr(embedded, "_convert", convert)

    def run(place: Path) -> None:
        monkeypatch.setenv("DDTE_CACHE", str(place / "cache"))
        embedded.embedded_folder()

    survives_every_fault(tmp_path, kind, run, lambda place: files(place / "cache" / embedded.NAME), 5)
