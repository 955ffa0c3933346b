"""`ddte bench verification`: time of one step's verification in multiples of the least it could take.

That floor is one read of the distributions of the tree's nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import comb
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from torch import Tensor

from selector.artifacts.claims import check_file
from selector.artifacts.writing import write_json
from selector.distributions import draw
from selector.errors import UserError
from selector.trees.draft_tree import DraftTree
from selector.trees.topology import build_topology, prefix_of
from selector.trees.verifiers import VERIFIERS, get_verifier

FLOOR, SOFTMAX = "floor", "softmax"
LEAST_ROUNDS, MOST_ROUNDS = 7, 200
BRANCH_LENGTH = 8
STEEPNESS = 1.2, 4.0  # Zipf exponents: from nearly flat to an almost certain token, as a model's laws are
DISAGREEMENT = 0.7  # standard deviation of the draft's logits around the target's, in nats


def bench_verification(
    nodes: Sequence[int],
    vocabularies: Sequence[int],
    verifiers: Sequence[str] | None = None,
    seconds: float = 8.0,
    json: Path | None = None,
) -> None:
    """Measure each size and print a table for each vocabulary as it is done."""
    names = verifiers or list(VERIFIERS)
    for name in names:
        get_verifier(name)
    for field, sizes, least in (("nodes", nodes, 3), ("vocabularies", vocabularies, 100)):
        if not sizes or min(sizes) < least:
            raise UserError(f"{field} is {list(sizes)}: give sizes of {least} or more.")
    if not seconds > 0:
        raise UserError(f"seconds is {seconds}: give a time above 0.")
    if json:
        check_file("json", json)
    console = Console()
    threads = torch.get_num_threads()
    console.print(
        f"Multiples of the floor (one read of the distributions, float32), 95% intervals; threads: {threads}."
    )
    rows: list[dict[str, Any]] = []
    for vocab in vocabularies:
        for size in nodes:
            rows += measure(size, vocab, names, seconds)
        console.print(bench_table([row for row in rows if row["vocab"] == vocab]))
    if json:
        write_json(json, rows)


def measure(nodes: int, vocab: int, verifiers: Sequence[str], seconds: float) -> list[dict[str, Any]]:
    """One row an arm: medians of its time and of its multiple of the floor, with the latter's interval."""
    step = random_step(nodes, vocab, seed=1)
    choices = sum(len(entries) > 1 for entries in step.tree.topology.children)
    size = {"nodes": nodes, "vocab": vocab, "branching_nodes": choices, "threads": torch.get_num_threads()}
    found = time_verifiers(step, verifiers, seconds)
    return [{"arm": arm, **size, **figure._asdict()} for arm, figure in found.items()]


def bench_table(rows: Sequence[dict[str, Any]]) -> Table:
    """A column for each size of the tree at one vocabulary.

    The first line counts the nodes with two drafts or more, the only ones where most solvers have work to do.
    """
    title = f"{rows[0]['vocab']:,} tokens"
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("arm", no_wrap=True)
    sizes = list(dict.fromkeys(row["nodes"] for row in rows))
    for nodes in sizes:
        table.add_column(f"{nodes} nodes", justify="right", no_wrap=True)
    choices = [str(row["branching_nodes"]) for row in rows if row["arm"] == FLOOR]
    table.add_row("2+ drafts", *choices)
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == arm]
        table.add_row(arm, *map(_cell, mine))
    return table


def _cell(row: dict[str, Any]) -> str:
    if row["arm"] == FLOOR:
        return f"{1000 * row['seconds']:.2f} ms"
    multiple, low, high = (f"{row[name]:.{1 if row[name] < 9.95 else 0}f}" for name in ("multiple", "low", "high"))
    return f"{multiple} [{low}, {high}]"


class Step(NamedTuple):
    """What a decoding step hands to verification, and the logits that it comes from.

    `target_logits`, `target_probs`: `[nodes, vocab]`; `draft_logits`: `[inner nodes, vocab]`; float32.
    """

    tree: DraftTree
    target_logits: Tensor
    draft_logits: Tensor
    target_probs: Tensor


class Figure(NamedTuple):
    """Median seconds of an arm; median, over rounds, of its multiple of the floor, and that median's interval."""

    seconds: float
    multiple: float
    low: float
    high: float
    rounds: int


def random_step(nodes: int, vocab: int, seed: int = 0) -> Step:
    """A delayed tree of exactly that many nodes (3 or more) with laws like a model's.

    Branches of up to eight tokens are drawn independently from the draft's laws, two or more of them; equal prefixes
    are one node. A trunk makes up for the nodes that were merged.
    """
    generator = torch.Generator().manual_seed(seed)
    count = max(2, round((nodes - 1) / BRANCH_LENGTH))
    laws: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    def path(length: int, start: tuple[int, ...] = ()) -> tuple[int, ...]:
        for _ in range(length):
            if start not in laws:
                laws[start] = random_logits(vocab, generator)
            start = (*start, int(draw(torch.softmax(laws[start][1], 0)[None], generator)))
        return start

    branches = [path((nodes - 1) // count) for _ in range(count)]
    merged = len({branch[:end] for branch in branches for end in range(1, len(branch) + 1)})
    trunk = path(nodes - 1 - merged, (-1,))[1:]
    topology, tokens = build_topology(trunk, branches)
    places = [prefix_of(topology, tokens, node) for node in range(len(topology))]
    # The laws drawn from: below the trunk's end by what follows it, along the trunk behind the mark of its own.
    keys = [place[len(trunk) :] if len(place) >= len(trunk) else (-1, *place) for place in places]
    rows = [laws[key] if key in laws else random_logits(vocab, generator) for key in keys]
    target = torch.stack([row for row, _ in rows])
    draft = torch.stack([row for _, row in rows[: topology.num_inner]])
    tree = DraftTree(topology, torch.tensor(tokens), torch.softmax(draft, -1))
    return Step(tree, target, draft, torch.softmax(target, -1))


def random_logits(vocab: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Target and draft logits `[vocab]` of one node: a Zipf law in a random order, which the draft gets half right."""
    low, high = STEEPNESS
    steepness = low + (high - low) * float(torch.rand((), generator=generator))
    target = -steepness * (1 + torch.randperm(vocab, generator=generator).float()).log()
    return target, target + DISAGREEMENT * torch.randn(vocab, generator=generator)


def time_verifiers(step: Step, verifiers: Sequence[str], seconds: float) -> dict[str, Figure]:
    """Time `verify` of each verifier, the floor and the two softmaxes, in turn and in an order that rotates.

    Rounds go on for `seconds`, but there are at least seven, after one to warm up.
    """
    generator = torch.Generator().manual_seed(0)
    arms: dict[str, Callable[[], object]] = {
        FLOOR: lambda: (step.target_probs.sum(), step.tree.draft_probs.sum()),
        SOFTMAX: lambda: (torch.softmax(step.target_logits, -1), torch.softmax(step.draft_logits, -1)),
    }
    for name in verifiers:
        verify = get_verifier(name).verify
        arms[name] = lambda verify=verify: verify(step.tree, step.target_probs, generator)  # type: ignore[misc]
    for run in arms.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in arms}
    end = time.perf_counter() + seconds
    for done in range(MOST_ROUNDS):
        if done >= LEAST_ROUNDS and time.perf_counter() > end:
            break
        order = list(arms)
        for name in order[done % len(order) :] + order[: done % len(order)]:
            start = time.perf_counter()
            arms[name]()
            times[name].append(time.perf_counter() - start)
    return figures(times)


def figures(times: Mapping[str, Sequence[float]]) -> dict[str, Figure]:
    """Multiples are taken round by round, so that a slow moment of the machine weighs on both sides."""
    found = {}
    for name, own in times.items():
        multiples = [mine / floor for mine, floor in zip(own, times[FLOOR], strict=True)]
        found[name] = Figure(median(own), median(multiples), *median_interval(multiples), len(own))
    return found


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The order statistics that hold the median with probability `level`, whatever the values' law."""
    size, ordered = len(values), sorted(values)
    outside, drop = 2 / 2**size, 0  # probability that the median lies beyond the ends that are left
    while drop + 1 < size / 2 and outside + 2 * comb(size, drop + 1) / 2**size <= 1 - level:
        drop += 1
        outside += 2 * comb(size, drop) / 2**size
    return ordered[drop], ordered[size - 1 - drop]
