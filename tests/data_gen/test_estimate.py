"""The estimate: counts, bytes against a real shard, and the refusal of a disk that is too small."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console

from data_gen.estimate import count_actions, estimate, hidden_sizes
from data_gen.pipeline import generate
from selector.config import ActionSpaceConfig, PairConfig
from selector.dataset.records import RootRecord
from selector.errors import UserError
from selector.features import SCALARS
from selector.trees.expansion import ActionSpace
from tests.support.shards import write_shard
from tests.support.small_runs import small_config, table_pair


def test_counts_and_bytes(tmp_path):
    found = estimate(small_config(["builtin"]), 10, tmp_path / "not" / "there")
    assert found.roots == 30
    assert found.total_bytes > 30 * found.bytes_per_root
    assert "at most 30 roots" in found.describe()


def test_the_estimate_is_an_upper_bound(tmp_path, prompt_file):
    config = small_config([prompt_file])
    folder = tmp_path / "data"
    generate(config, folder, table_pair(), Console(quiet=True))
    size = sum(path.stat().st_size for path in folder.glob("shards/*"))
    assert 0 < size < estimate(config, 6, tmp_path).total_bytes


def qwen_config(folder):
    """The shapes of Qwen2.5-32B and 0.5B, the paper's action space, four verifiers."""
    for name, size in (("target", 5120), ("draft", 896)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({"hidden_size": size}))
    pair = PairConfig(str(folder / "target"), str(folder / "draft"))
    config = small_config(["builtin"], verifiers=["nss", "naive", "specinfer", "traversal"])
    return replace(config, pair=pair, action_space=ActionSpaceConfig(4, 8, 8))


def random_record(config, place):
    """Values without any regularity to compress."""
    generator = torch.Generator().manual_seed(place)
    actions = count_actions(config.action_space)
    target, draft, draft_root = (torch.randn(size, generator=generator) for size in (5120, 896, 896))
    return RootRecord(
        target, draft, draft_root, torch.randn(len(SCALARS), generator=generator),
        f"prompt-{place}", "coding", 7, 16 * place, 300, 0.6, 1.0, 0, 0.6, 1.0,
        {name: 1 + 8 * torch.rand(2, actions, generator=generator) for name in config.generate.verifiers},
        {name: torch.rand(actions, generator=generator) for name in config.generate.verifiers},
    )  # fmt: skip


def test_a_root_of_the_qwen_pair_takes_at_most_twenty_kilobytes(tmp_path):
    assert 19_000 < estimate(qwen_config(tmp_path), 1, tmp_path).bytes_per_root <= 20_000


def test_a_shard_of_the_qwen_pair_is_as_large_as_estimated(tmp_path):
    """Rows of noise, of which compression gains the exponents' few bits: to 3% before it, from above after it."""
    config, shard = qwen_config(tmp_path), tmp_path / "shard.parquet"
    write_shard(shard, [random_record(config, place) for place in range(64)])
    per_root = estimate(config, 1, tmp_path).bytes_per_root
    raw = pq.read_metadata(shard).row_group(0).total_byte_size
    assert raw == pytest.approx(64 * per_root, rel=0.03)
    assert 0.85 < shard.stat().st_size / (64 * per_root) < 1


def test_a_small_disk_is_refused(tmp_path, prompt_file, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match=r"are free and up to"):
        generate(small_config([prompt_file]), tmp_path / "data", table_pair(), Console(quiet=True))
    assert not (tmp_path / "data").exists()


def test_hidden_sizes_come_from_the_configuration(tmp_path):
    for name, content in (("a", {"hidden_size": 5120}), ("b", {"text_config": {"hidden_size": 896}}), ("c", {})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(content))
    pair = PairConfig(str(tmp_path / "a"), str(tmp_path / "b"))
    assert hidden_sizes(pair) == (5120, 896)
    assert hidden_sizes(replace(pair, draft=str(tmp_path / "c"))) == (5120, 5120)
    assert hidden_sizes(replace(pair, target="embedded", draft=str(tmp_path / "c"))) == (576, 576)


@pytest.mark.parametrize("limits", [(1, 0, 0), (1, 3, 2), (2, 0, 1), (3, 2, 0), (4, 8, 8)])
def test_actions_are_counted_as_they_are_listed(limits):
    assert count_actions(ActionSpaceConfig(*limits)) == len(ActionSpace(*limits))


def test_a_huge_action_space_is_refused_at_once(tmp_path):
    config = replace(small_config(["builtin"]), action_space=ActionSpaceConfig(10**6, 10**6, 10**6))
    with pytest.raises(UserError, match=r"action_space is \(1000000, 1000000, 1000000\)"):
        estimate(config, 1, tmp_path)
