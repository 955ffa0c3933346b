"""Synthetic data sets in which the best action of a root is known: in memory for evaluation, on disk for training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from selector.config import TrainConfig
from selector.dataset.dataset import RootDataset
from selector.dataset.manifest import Manifest, Unit
from selector.dataset.records import RootRecord
from selector.features import HIDDEN, SCALARS
from selector.pair_names import ModelName, PairNames
from selector.trees.expansion import ActionSpace
from tests.support.shards import write_shard

SPACE = ActionSpace(2, 2, 3)
SETTINGS = [(0.2, 1.0), (1.0, 0.9)]
TASKS = ["coding", "writing"]
NAMES = PairNames(ModelName("some/target", "c0ffee", "mit"), ModelName("/drafts/own", "", "MIT", ("some/base",)))
TWO_SCALARS = ["draft_entropy_root", "context_length"]
CONFIG = TrainConfig(
    verifiers=["naive"], hidden_sizes=(32, 16), components=8, batch_size=32, max_epochs=25, patience=25,
    dropout=0.0, learning_rate=5e-3, accelerator="cpu",
)  # fmt: skip


def expected_tokens(acceptance: Tensor) -> Tensor:
    """`[roots, actions]` from the acceptance rate `[roots]`: a first branching level is accepted more often."""
    columns = []
    for branches, trunk, length in SPACE.expansions:
        reach, total = torch.ones_like(acceptance), torch.ones_like(acceptance)
        for depth in range(trunk + length):
            reach = reach * (1 - (1 - acceptance) ** 1.6 if branches > 1 and depth == trunk else acceptance)
            total = total + reach
        columns.append(total)
    return torch.stack(columns, 1)


def acceptance_rates(hidden: Tensor, draft_entropy: Tensor) -> Tensor:
    """`[roots]`, between 0.05 and 0.95: a hidden direction and a scalar decide."""
    return 0.05 + 0.9 * torch.sigmoid(3 * hidden[:, 0] - 3 * draft_entropy)


def make_dataset(
    prompts: int = 24,
    roots: int = 8,
    noise: float = 0.0,
    constant: float | None = None,
    verifiers: tuple[str, ...] = ("specinfer",),
    seed: int = 0,
) -> RootDataset:
    """Half of the roots accept 95% of the draft's tokens and half 5%; the first scalar tells.

    With `constant` every action of every root yields that many tokens, apart from noise.
    """
    rng = np.random.default_rng(seed)
    size = prompts * roots
    hard = rng.random(size) < 0.5
    mean = expected_tokens(torch.tensor(np.where(hard, 0.05, 0.95))).numpy()
    if constant is not None:
        mean = np.full_like(mean, constant)
    labels = {
        name: torch.tensor(mean[:, None] + noise * rng.standard_normal((size, 2, len(SPACE))), dtype=torch.float32)
        for name in verifiers
    }
    scalars = np.stack([hard + 0.1 * rng.random(size), rng.integers(20, 200, size)], 1)
    hidden = {name: torch.tensor(rng.standard_normal((size, 6)), dtype=torch.float32) for name in HIDDEN}
    index = np.arange(size) // roots
    manifest = Manifest({}, tuple(SPACE.limits), list(verifiers), TWO_SCALARS, {"target": 6, "draft": 6}, "t", "d")
    return RootDataset(
        manifest=manifest,
        hidden=hidden,
        scalars=torch.tensor(scalars, dtype=torch.float32),
        efficiency=labels,
        standard_error={name: torch.full((size, len(SPACE)), noise) for name in verifiers},
        prompt_ids=[f"prompt-{number:03d}" for number in index],
        tasks=[TASKS[number % 2] for number in index],
        settings=torch.tensor([SETTINGS[number // 2 % 2] for number in index]),
        context_length=torch.tensor(scalars[:, 1], dtype=torch.int64),
        position=torch.zeros(size, dtype=torch.int64),
    )


def write_dataset(
    folder: Path,
    *,
    prompts: int = 60,
    roots: int = 10,
    noise: float = 0.2,
    informative: bool = True,
    verifiers: tuple[str, ...] = ("naive",),
    seed: int = 0,
) -> None:
    """Write a data set in whose roots a hidden direction and a scalar decide on the acceptance rate.

    Labels are off by up to the share `noise` of what they exceed 1 by; with `informative=False` no feature tells
    anything and all roots are alike.
    """
    generator = torch.Generator().manual_seed(seed)
    count = prompts * roots
    hidden = torch.randn(count, 14, generator=generator)
    scalars = torch.randn(count, len(SCALARS), generator=generator)
    scalars[:, SCALARS.index("context_length")] = torch.randint(10, 400, (count,), generator=generator).float()
    if informative:
        rates = acceptance_rates(hidden, scalars[:, SCALARS.index("draft_entropy_root")])
    else:
        rates = torch.full((count,), 0.6)
    depth = torch.tensor([float(expansion.max_depth) for expansion in SPACE.expansions])
    gains = expected_tokens(rates)[:, None] - 1
    errors = 2 * torch.rand(count, 2, len(SPACE), generator=generator) - 1
    labels = 1 + (gains * (1 + noise * errors)).minimum(depth)
    spread = noise / 6**0.5 * gains[:, 0]  # of the mean of two uniform errors
    records = [
        RootRecord(
            prompt_id=f"p{row // roots}", task="ab"[row // roots % 2], prompt_index=row // roots, position=row % roots,
            context_length=int(scalars[row, SCALARS.index("context_length")]),
            temperature=(0.2, 1.0)[row // roots // 2 % 2], top_p=1.0, top_k=0, draft_temperature=1.0, draft_top_p=1.0,
            target_hidden=hidden[row, :6], draft_hidden_prev=hidden[row, 6:10], draft_hidden_root=hidden[row, 10:],
            scalars=scalars[row], efficiency=dict.fromkeys(verifiers, labels[row]),
            standard_error=dict.fromkeys(verifiers, spread[row]),
        )
        for row in range(count)
    ]  # fmt: skip
    write_shard(folder / "shards" / "part-00000.parquet", records)
    Manifest(
        config={"seed": seed}, action_space=tuple(SPACE.limits), verifiers=list(verifiers), scalars=list(SCALARS),
        hidden_sizes={"target": 6, "draft": 4}, target_fingerprint="t1", draft_fingerprint="d1", models=NAMES,
        units=[Unit("all", "done", "part-00000.parquet", count, 1.0)], complete=True,
    ).save(folder)  # fmt: skip
