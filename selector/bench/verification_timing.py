"""Time of one step's verification beside the least it could take: reading the laws of the tree's nodes once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import comb
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from selector.distributions import draw
from selector.losslessness.worked_cases import build_topology, prefix_of
from selector.trees.draft_tree import DraftTree
from selector.trees.verifiers import get_verifier

FLOOR, SOFTMAX = "floor", "softmax"
LEAST_ROUNDS, MOST_ROUNDS = 7, 200
BRANCH_LENGTH = 8
STEEPNESS = 1.2, 4.0  # Zipf exponents: from nearly flat to an almost certain token, as a model's laws are
DISAGREEMENT = 0.7  # standard deviation of the draft's logits around the target's, in nats


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


def bench_step(step: Step, verifiers: Sequence[str], seconds: float) -> dict[str, Figure]:
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
