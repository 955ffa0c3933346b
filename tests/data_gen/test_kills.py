"""`ddte generate` as a process of its own, killed at random moments: in the end nothing is lost and nothing differs."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from data_gen.checking import check_data_set
from data_gen.pipeline import generate
from selector.artifacts.writing import as_json
from selector.dataset.manifest import JOURNAL, Manifest
from tests.support.disk_pair import disk_config, rows

ROOT = Path(__file__).parents[2]


def start(config: Path, folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "selector.cli", "generate", "--config", str(config), "--out", str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done_shards(folder: Path) -> dict[str, int]:
    """Shards that the manifest and its journal call done, with the time of their writing."""
    names = {unit.shard for unit in Manifest.load(folder).units if unit.status == "done"}
    return {name: (folder / "shards" / name).stat().st_mtime_ns for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_three_sigkills_at_random_moments(tmp_path, prompt_file, seed):
    config = disk_config(
        tmp_path / "models", prompt_file, settings_per_prompt=3, max_new_tokens=120, root_every=4, num_samples=4
    )
    generate(config, tmp_path / "whole", console=Console(quiet=True))
    file, folder = tmp_path / "config.yaml", tmp_path / "killed"
    file.write_text(json.dumps(as_json(config)))
    moments, done = random.Random(seed), {}
    for kill in range(3):
        process = start(file, folder)
        deadline = time.time() + 120
        while len(list(folder.glob("shards/*.parquet"))) <= 4 * kill and time.time() < deadline:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.3))
        process.kill()
        process.wait()
        assert process.returncode == -9
        now = done_shards(folder)
        assert done.items() <= now.items()  # nothing that was done has been done again
        assert len(now) > len(done)
        done = now
    assert not Manifest.load(folder).complete
    last = start(file, folder)
    out, error = last.communicate()
    assert last.returncode == 0, error
    assert f"{len(done)} of 18 trajectories are there already and are skipped" in " ".join(out.split())
    assert done.items() <= done_shards(folder).items()
    assert rows(folder) == rows(tmp_path / "whole")
    assert not (folder / JOURNAL).exists()
    assert not list(folder.rglob("*.tmp"))
    check_data_set(folder, Console(quiet=True))
