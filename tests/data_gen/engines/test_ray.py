"""The Ray engine: the same rows as the local one, also when a worker is killed during the run."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from data_gen.pipeline import generate
from selector.dataset.dataset import RootDataset
from selector.errors import UserError
from tests.support.disk_pair import disk_config, rows
from tests.support.small_runs import small_config

LONG = {"settings_per_prompt": 3, "max_new_tokens": 60, "root_every": 4}


@pytest.fixture(scope="module")
def session():
    """A local Ray of two cores, closed at the end."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
    yield ray
    ray.shutdown()


def replicas() -> list[int]:
    """Process ids of the actors below this process."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            names[int(entry.name)] = (entry / "cmdline").read_text()
        except (ValueError, OSError):
            continue
    mine = [pid for pid, name in names.items() if name.startswith("ray::Replica")]
    return sorted(pid for pid in mine if parents.get(parents[pid]) == os.getpid())


def kill_one(folder: Path, killed: list[int]) -> None:
    """Kill a worker as soon as something has been written by the two of them."""
    deadline = time.time() + 60
    while len(list(folder.glob("shards/*.parquet"))) < 2 and time.time() < deadline:
        time.sleep(0.002)
    pid = replicas()[0]
    os.kill(pid, signal.SIGKILL)
    killed.append(pid)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers in /proc")
def test_a_killed_worker_changes_nothing(tmp_path, prompt_file, session, capsys):
    config = disk_config(tmp_path / "models", prompt_file, **LONG)
    generate(config, tmp_path / "local", console=Console(quiet=True))
    killed: list[int] = []
    killer = threading.Thread(target=kill_one, args=(tmp_path / "ray", killed))
    killer.start()
    manifest = generate(config, tmp_path / "ray", console=Console(width=300), engine="ray", workers=2)
    killer.join()
    assert len(killed) == 1
    assert "a worker was lost" in capsys.readouterr().out
    assert [unit.status for unit in manifest.units] == ["done"] * 18
    assert rows(tmp_path / "ray") == rows(tmp_path / "local")
    assert len(RootDataset.load(tmp_path / "ray")) > 18


@pytest.mark.slow
def test_what_a_worker_cannot_load_is_one_sentence(tmp_path, prompt_file, session):
    config = disk_config(tmp_path / "models", prompt_file)
    (tmp_path / "models" / "draft" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"draft is .*: it could not be loaded") as caught:
        generate(config, tmp_path / "data", console=Console(quiet=True), engine="ray", workers=1)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_without_ray_it_is_one_sentence(tmp_path, prompt_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"not installed: `pip install ddte\[ray\]`"):
        generate(small_config([prompt_file]), tmp_path / "data", engine="ray")


def test_settings_that_make_no_sense_are_refused(tmp_path, prompt_file):
    with pytest.raises(UserError, match=r"workers is 3, but the local engine"):
        generate(small_config([prompt_file]), tmp_path / "data", workers=3)
    with pytest.raises(UserError, match=r"workers is -1"):
        generate(small_config([prompt_file]), tmp_path / "data", engine="ray", workers=-1)
