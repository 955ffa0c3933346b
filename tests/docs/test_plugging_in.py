"""Every block of `docs/plugging-in.md`, run in order on small models; then what the page says of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import ddte
from selector.config import ActionSpaceConfig, TrainConfig
from selector.decoding.profiling import linear_selector
from selector.distributions import Sampling, warp
from selector.engine import drafting
from selector.trees import efficiency, verifiers
from selector.trees.topology import Topology
from selector.verification.nss import NSS
from tests.support.disk_pair import disk_config, save_pair
from tests.support.every_draw import difference, every_run
from tests.support.profiles import make_profile
from tests.support.table_model import TableModel

PAGE = Path(__file__).parents[2] / "docs" / "plugging-in.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
SAMPLING = Sampling(0.9)
VOCAB, TEXT = 3, 2


def small_selector(folder: Path) -> None:
    """A selector of the table pair that reads the root and takes now one chain, now another."""
    checkpoint = linear_selector(table_pair(), (2, 0, 2), "root").checkpoint
    network = checkpoint.network
    generator = torch.Generator().manual_seed(0)
    network.linear_weight.copy_(torch.randn(network.linear_weight.shape, generator=generator))
    network.linear_bias.copy_(torch.tensor([1.0 + tree.max_depth for tree in checkpoint.space.expansions]))
    network.mean_efficiency.copy_(network.linear_bias)
    trained = {"temperature": [0.0, 1.0], "top_p": [1.0, 1.0]}
    checkpoint.config = replace(checkpoint.config, verifier="nss", sampling_range=trained)
    checkpoint.save(folder, "")


def table_pair() -> Any:
    return SimpleNamespace(target=TableModel(VOCAB, 1), draft=TableModel(VOCAB, 2))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The names that the page has made once it is read to its end."""
    folder = tmp_path_factory.mktemp("page")
    prompts = folder / "prompts.jsonl"
    message = '{"id": "p%d", "task": "t", "messages": [{"role": "user", "content": "w%d w%d"}]}'
    prompts.write_text("\n".join(message % (i, i + 1, i + 3) for i in range(10)))
    loaded = ddte.load_pair(save_pair(folder / "models"))
    config = replace(
        disk_config(folder, str(prompts), verifiers=["follow"]),
        action_space=ActionSpaceConfig(2, 1, 1),
        train=TrainConfig(["follow"], hidden_sizes=(8, 4), max_epochs=1),
    )
    small_selector(folder / "my-selector")
    make_profile().save(folder / "profile.json")
    models = {"target_model": loaded.target.model, "tokenizer": loaded.tokenizer, "draft_model": loaded.draft.model}
    names: dict[str, Any] = {"pair": loaded, "config": config, "prompt": "w1 w2", **models}
    before, tables = Path.cwd(), (dict(verifiers.VERIFIERS), dict(efficiency.ESTIMATORS))
    os.chdir(folder)
    try:
        for block in BLOCKS:
            exec(block, names)
        yield SimpleNamespace(**names)
    finally:
        os.chdir(before)
        for table, known in zip((verifiers.VERIFIERS, efficiency.ESTIMATORS), tables, strict=True):
            table.clear()
            table.update(known)


def test_the_page_has_its_blocks(page: Any) -> None:
    assert len(BLOCKS) == 9
    assert len(page.answer.tokens) == 32 or page.answer.finish == "end"
    assert page.run.selector("follow").config.verifier == "follow"


def test_the_solver_of_the_page_is_nss(page: Any) -> None:
    """It is lossless as that one is: the same exact distribution on a tree with repeated drafts."""
    from selector.trees.draft_tree import DraftTree
    from selector.trees.walk import Walk

    generator = torch.Generator().manual_seed(1)
    topology = Topology((-1, 0, 0, 1, 1))
    rows = torch.softmax(torch.randn(2, 5, 4, generator=generator, dtype=torch.float64), -1)
    tree = DraftTree(topology, torch.tensor([0, 1, 2, 3, 1]), rows[0])
    own, known = (Walk(solver).distribution(tree, rows[1]) for solver in (page.Follow(), NSS()))
    torch.testing.assert_close(own, known)


def models_of_the_loop() -> tuple[Any, Any, TableModel]:
    """`target(tokens)` and `draft(tokens)` as the page calls them, and the target itself."""
    target, draft = TableModel(VOCAB, 1), TableModel(VOCAB, 2)

    def run_target(tokens: list[int]) -> Any:
        return torch.stack([target.logits(tokens[: end + 1]) for end in range(len(tokens))])

    def run_draft(tokens: list[int]) -> Any:
        return draft.logits(tokens).float(), torch.tensor([len(tokens), tokens[-1], 2.0])

    return run_target, run_draft, target


def law_of(generate: Any, length: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    """How far the exact distribution of `TEXT` tokens, over every draw of `generate`, is from the target's."""
    target, draft, table = models_of_the_loop()
    monkeypatch.setitem(generate.__globals__, "draw", lambda probs: drafting.draw(probs))  # `every_run` replaces it
    law = every_run(lambda: generate(target, draft, [1, 2], length, SAMPLING, TEXT), monkeypatch)
    expected: dict[tuple[int, ...], float] = {(1, 2): 1.0}
    for _ in range(TEXT):
        expected = {
            (*text, token): weight * probability
            for text, weight in expected.items()
            for token, probability in enumerate(warp(table.logits(text), SAMPLING).tolist())
        }
    return difference(law, expected)


def test_the_loop_is_lossless(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []

    def length(*root: Any) -> int:
        lengths.append(max(page.length(*root) - root[2] % 2, 0))  # on such small models it may say the same everywhere
        return lengths[-1]

    assert law_of(page.generate, length, monkeypatch) < 1e-9
    assert len(set(lengths)) > 1
    assert max(lengths) > 0


def test_a_loop_that_asks_nobody_is_seen(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    block = next(block for block in BLOCKS if "def generate" in block)
    names = {**vars(page)}
    exec(block.replace("token != own[place]", "False"), names)
    assert law_of(names["generate"], lambda *root: 1, monkeypatch) > 0.01


def test_the_proposer_answers_each_request_by_itself(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, draft, _ = models_of_the_loop()
    for name, value in {"draft": draft, "sampling": SAMPLING}.items():
        monkeypatch.setitem(page.Proposer.propose.__globals__, name, value)
    proposer = page.Proposer(SimpleNamespace(speculative_config=SimpleNamespace(num_speculative_tokens=2)))
    rows = torch.tensor([[1, 2, 2, 0], [2, 1, 0, 0], [1, 0, 0, 0]])
    counts = torch.tensor([3, 2, 1])
    answers = proposer.propose([[2], [1], []], counts, rows)
    assert answers[2] == []
    for row, count, answer in zip(rows, counts, answers[:2], strict=False):
        text = row[:count].tolist()
        assert answer == page.propose(draft, text, page.length, SAMPLING)[:2]


def test_trees_that_the_engine_cannot_draft_are_never_chosen(page: Any) -> None:
    branched = [tree.num_branches > 1 for tree in page.length.trees]
    assert any(branched)
    assert torch.from_numpy(page.length.prices)[:, branched].isinf().all()


def test_the_selector_alone_needs_what_the_page_says() -> None:
    absent = "transformers huggingface_hub pytorch_lightning datasets sklearn pyarrow rich jsonargparse yaml scipy"
    program = f"import sys, selector.network.checkpoint; assert not set({absent.split()}) & sys.modules.keys()"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
