"""Names of a pair: they hold in every folder, and are given to who names none."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.config import PairConfig
from selector.pair_names import EMBEDDED, ModelName, PairNames, licence_keys, shared_licence
from selector.shipped import lasting

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_models_are_given_to_who_names_none() -> None:
    names = PairNames(ModelName("someone/target", COMMIT), ModelName("/models/draft"), "nf4", "bfloat16")
    pair = names.given_to(PairConfig(device="cpu"))
    assert pair == PairConfig("someone/target", "/models/draft", device="cpu", revision=COMMIT, quantization="nf4")
    assert names.given_to(PairConfig(target="mine")) == PairConfig("mine", "/models/draft")
    own_draft = PairConfig(draft="mine")
    assert names.given_to(own_draft) == PairConfig("someone/target", "mine", revision=COMMIT, quantization="nf4")
    asked = PairConfig(revision="v2", draft_revision="v3", quantization="nf4")
    given = PairNames(ModelName("someone/target", COMMIT), ModelName("someone/draft", COMMIT)).given_to(asked)
    assert (given.revision, given.draft_revision, given.quantization) == ("v2", "v3", "nf4")
    other = PairConfig("mine", "mine too")
    assert names.given_to(other) is other
    assert PairNames().given_to(other) is other
    assert PairNames.of(vars(PairConfig())).given_to(PairConfig()) == PairConfig()


def test_a_folder_is_found_from_everywhere_and_what_is_shipped_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("target", "checkpoints/mine"):
        Path(name).mkdir(parents=True)
        assert lasting(name) == str(tmp_path / name)
        assert lasting(str(tmp_path / name)) == str(tmp_path / name)
    for name in ("", "someone/model", "checkpoints/absent", PairConfig.draft):
        assert lasting(name) == name
    monkeypatch.chdir(Path(__file__).parents[2])
    assert lasting(PairConfig.draft) == PairConfig.draft


def test_stored_configurations_name_models_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "embedded").mkdir()
    stored = {"target": "embedded", "draft": "someone/draft", "draft_revision": "v1", "device": "cuda", "dtype": "auto"}
    assert PairNames.of(stored, "bfloat16") == PairNames(EMBEDDED, ModelName("someone/draft", "v1"), dtype="bfloat16")
    for damaged in (None, [], "pair", {}):
        assert PairNames.of(damaged, "") == PairNames()


@pytest.mark.parametrize(
    ("model", "title", "hub_ids"),
    [
        (ModelName("someone/model", COMMIT, "mit", ("someone/base",)), "someone/model", ("someone/model",)),
        (ModelName("gpt2"), "gpt2", ("gpt2",)),
        (ModelName("/home/me/models/tuned", base_model=("a/b", "c/d")), "models/tuned", ("a/b", "c/d")),
        (ModelName("checkpoints/smollm2-135m/draft"), "smollm2-135m/draft", ()),
        (EMBEDDED, "HuggingFaceTB/SmolLM2-135M-Instruct", ("HuggingFaceTB/SmolLM2-135M-Instruct",)),
        (ModelName(), "", ()),
    ],
)
def test_what_the_hub_and_a_title_call_a_model(model: ModelName, title: str, hub_ids: tuple[str, ...]) -> None:
    assert (model.title, model.hub_ids) == (title, hub_ids)


def test_base_models_of_a_card_come_once() -> None:
    own = ModelName("/drafts/exit", base_model=EMBEDDED.base_model)
    assert PairNames(EMBEDDED, own).base_model == ["HuggingFaceTB/SmolLM2-135M-Instruct"]
    assert PairNames(ModelName("a/b"), own).base_model == ["a/b", "HuggingFaceTB/SmolLM2-135M-Instruct"]


@pytest.mark.parametrize(
    ("licences", "shared"),
    [
        (("mit", "MIT"), "mit"),
        (("mit", "apache-2.0"), "unknown"),
        (("mit", "unknown"), "unknown"),
        (("unknown", "unknown"), "unknown"),
    ],
)
def test_a_licence_is_shared_or_unknown(licences: tuple[str, str], shared: str) -> None:
    assert shared_licence(*licences) == shared
    assert PairNames(*(ModelName(licence=licence) for licence in licences)).licence == shared


def test_a_licence_that_the_hub_has_no_word_for() -> None:
    assert licence_keys("other: qwen-research") == {"license": "other", "license_name": "qwen-research"}
    assert licence_keys("mit") == {"license": "mit"}
