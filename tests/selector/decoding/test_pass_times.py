"""Pass times are this machine's: measured once, kept, and taken; those of another machine never in silence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from selector.config import PairConfig
from selector.decoding import pass_times
from selector.decoding.decoder import Decoder
from selector.decoding.pass_times import TRIES, decoding_times, foreign_times, machine_profile
from selector.decoding.policies import FixedPolicy
from selector.decoding.profiling import describe_machine, machine_kind
from selector.engine.huggingface import Pair, pair_with
from selector.errors import UserError
from selector.latency import LatencyProfile
from tests.support.profiles import make_disturbed_profile, make_profile
from tests.support.scripted_selectors import make_checkpoint

SPACE = (2, 1, 1)


@pytest.fixture
def pair(target_llama: LlamaForCausalLM, draft_llama: LlamaForCausalLM) -> Pair:
    return pair_with(target_llama, None, PairConfig(), draft_llama)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[dict[str, Any]]]:
    """Measurements that took place, of which none takes time."""
    calls: list[dict[str, Any]] = []

    def measure(pair: Pair, contexts: Any, widths: Any, **options: Any) -> LatencyProfile:
        calls.append({"contexts": contexts, "widths": widths} | options)
        return replace(make_profile(), machine=describe_machine(pair))

    monkeypatch.setenv("DDTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pass_times, "measure_profile", measure)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield calls


def checkpoint_of(pair: Pair, profile: LatencyProfile, **changes: Any) -> Any:
    fingerprints = {"target_fingerprint": pair.target.fingerprint, "draft_fingerprint": pair.draft.fingerprint}
    return make_checkpoint(profile=asdict(profile), **fingerprints, **changes)


@pytest.mark.parametrize("changed", ["device", "threads", "dtype", "packed", "target", None])
def test_times_of_another_kind_are_named(changed: str | None, pair: Pair) -> None:
    machine = describe_machine(pair)
    sentence = foreign_times(replace(make_profile(), machine=machine | ({changed: "other"} if changed else {})), pair)
    here = machine_kind(pair) | {"target": pair.target.fingerprint}
    assert sentence == (f"{changed} is other, here {here[changed]}" if changed else None)
    without = {name: value for name, value in machine.items() if name != changed}
    sentence = foreign_times(replace(make_profile(), machine=without), pair)
    assert sentence == (f"{changed} is not recorded" if changed else None)


def test_a_measurement_is_kept(pair: Pair, measured: list[dict[str, Any]], tmp_path: Path) -> None:
    said: list[str] = []
    first = machine_profile(pair, SPACE, "root", said.append)
    assert "Measuring" in said[0]
    assert str(tmp_path / "cache" / "profiles") in said[0]
    assert said[1].startswith("Measured in ")
    assert machine_profile(pair, SPACE, "root", said.append) == first == replace(make_profile(), machine=first.machine)
    assert len(said) == 2
    assert [call["action_space"] for call in measured] == [SPACE]
    assert list(measured[0]["widths"]) == [1, 2, 4]  # the largest tree has four rows
    other = replace(pair, config=replace(pair.config, attn_implementation="eager"))
    for changed in ((other, SPACE, "root"), (pair, (4, 8, 8), "root"), (pair, SPACE, "all")):
        machine_profile(*changed, said.append)  # type: ignore[arg-type]
    assert len(measured) == 4
    assert list(measured[2]["widths"]) == [1, 2, 4, 8, 16, 32, 64]


def test_other_work_is_waited_out_or_named(
    pair: Pair, measured: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = make_disturbed_profile()
    profiles = iter([busy, make_profile(), *[busy] * TRIES])
    monkeypatch.setattr(pass_times, "measure_profile", lambda *_, **__: next(profiles))
    said: list[str] = []
    assert machine_profile(pair, SPACE, "root", said.append) == make_profile()
    assert next(sentence for sentence in said if sentence.startswith("Disturbed")).endswith("Measuring again.")
    for _ in range(2):
        with pytest.warns(UserWarning, match="draft over 1 rows took 500.0 ms .*: remove the file"):
            assert machine_profile(pair, SPACE, "all", said.append) == busy
    assert next(profiles, None) is None


def test_the_checkpoints_times_serve_where_they_are_of_this_machine(pair: Pair, measured: list[dict[str, Any]]) -> None:
    own = replace(make_profile(), machine=describe_machine(pair) | {"versions": {}})
    for given in ("machine", "checkpoint", own):
        assert decoding_times(given, pair, checkpoint_of(pair, own)) == own  # type: ignore[arg-type]
    assert not measured


def test_foreign_times_are_replaced_or_named(pair: Pair, measured: list[dict[str, Any]]) -> None:
    toy = make_profile()
    selector = checkpoint_of(pair, toy)
    assert decoding_times("machine", pair, selector).machine == describe_machine(pair)
    assert len(measured) == 1
    for given, named in (("checkpoint", "the checkpoint"), (toy, "the profile")):
        with pytest.warns(UserWarning, match=f"^{named} has pass times of another kind .device is toy, here cpu"):
            assert decoding_times(given, pair, selector) == toy  # type: ignore[arg-type]
    with pytest.raises(UserError, match="profile is 'mine': give a LatencyProfile, 'machine' or 'checkpoint'"):
        decoding_times("mine", pair, selector)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="profile is made for another target model"):
        decoding_times(replace(toy, machine={"target": "t9"}), pair, selector)


def test_what_asks_for_no_times_measures_none(pair: Pair, measured: list[dict[str, Any]]) -> None:
    selector = checkpoint_of(pair, make_profile(), best_static=(2, 1, 1))
    decoder = Decoder.with_selector(pair, selector, head="(2, 0, 1)", guard=False)
    assert isinstance(decoder.policy, FixedPolicy)
    assert decoder.guard is None
    assert not measured
    Decoder.with_selector(pair, selector)
    Decoder.with_selector(pair, selector, head="(2, 0, 1)")
    assert len(measured) == 1
