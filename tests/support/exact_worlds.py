"""Small models whose trees can all be enumerated, so that a verifier's output law is a finite sum."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Action, CopyExpansion
from selector.trees.topology import add_chain, build_topology, prefix_of
from selector.trees.verifier import Verifier


class World:
    """Random target and draft laws of every prefix over `vocab` tokens.

    `zeros` cuts some tokens from the target (`t`), the draft (`d`) or both (`td`); `closeness` pulls the draft
    towards the target. `earlier` is the text that copied chains begin with.
    """

    def __init__(
        self,
        vocab: int = 3,
        seed: int = 0,
        zeros: str = "",
        closeness: float = 0.0,
        earlier: tuple[int, ...] = (1, 0, 1, 1),
    ) -> None:
        self.vocab, self.seed, self.zeros, self.closeness = vocab, seed, zeros, closeness
        self.earlier = earlier
        self._laws: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def law(self, kind: str, prefix: tuple[int, ...]) -> Tensor:
        """Law `target` or `draft` after a prefix; float64."""
        if (kind, prefix) not in self._laws:
            generator = torch.Generator().manual_seed(hash((self.seed, kind == "target", prefix)) % 2**31)
            logits = 1.3 * torch.randn(self.vocab, generator=generator, dtype=torch.float64)
            if kind == "draft" and self.closeness:
                logits = logits + self.closeness * self.law("target", prefix).clamp(min=1e-3).log()
            if kind[0] in self.zeros and sum(prefix) % 2 == 0:
                logits[int(torch.randint(self.vocab, (), generator=generator))] = float("-inf")
            self._laws[kind, prefix] = torch.softmax(logits, 0)
        return self._laws[kind, prefix]

    def tree(
        self,
        trunk: tuple[int, ...],
        branches: tuple[tuple[int, ...], ...],
        chain: tuple[int, ...] = (),
        beside: bool = False,
    ) -> tuple[DraftTree, Tensor]:
        """The tree of a drawing, below a copied chain or with one beside it, and its target laws `[nodes, vocab]`."""
        above = () if beside else chain
        topology, tokens = build_topology((*above, *trunk), branches)
        for node in range(len(above)):
            topology.children[node] = []
        copied = add_chain(topology, tokens, chain) if beside else tuple(range(1, len(chain) + 1))
        prefixes = [prefix_of(topology, tokens, node) for node in range(len(tokens))]
        target = torch.stack([self.law("target", prefix) for prefix in prefixes])
        rows = max((node for node, entries in enumerate(topology.children) if entries), default=-1) + 1
        draft = torch.zeros(rows, self.vocab, dtype=torch.float64)
        for node in range(len(draft)):
            if topology.children[node]:
                draft[node] = self.law("draft", prefixes[node])
        return DraftTree(topology, torch.tensor(tokens), draft, copied=copied), target

    def path_probability(self, prefix: tuple[int, ...], path: tuple[int, ...]) -> float:
        probability = 1.0
        for token in path:
            probability *= float(self.law("draft", prefix)[token])
            prefix = (*prefix, token)
        return probability

    def trees(self, action: Action) -> Iterator[tuple[float, DraftTree, Tensor]]:
        """All drawings of an action with their probability."""
        chain: tuple[int, ...] = ()
        beside, expansion = False, action.drafted
        if isinstance(action, CopyExpansion):
            chain, beside = self.earlier[: action.length], action.beside
        above = () if beside else chain
        for trunk in itertools.product(range(self.vocab), repeat=expansion.trunk_length):
            start = self.path_probability(above, trunk)
            paths = [
                (path, self.path_probability((*above, *trunk), path))
                for path in itertools.product(range(self.vocab), repeat=expansion.branch_length)
            ]
            paths = [(path, probability) for path, probability in paths if probability > 0]
            for chosen in itertools.product(paths, repeat=expansion.num_branches):
                weight = start
                for _, probability in chosen:
                    weight *= probability
                if weight > 0:
                    yield weight, *self.tree(trunk, tuple(path for path, _ in chosen), chain, beside)

    def target_law(self, length: int) -> Tensor:
        """`[vocab] * length`: the target's law of the next `length` tokens."""
        return self.extend(torch.ones((), dtype=torch.float64), (), length)

    def extend(self, weight: Tensor, prefix: tuple[int, ...], length: int) -> Tensor:
        """`[vocab] * length`: `weight` times the target's law of the tokens after `prefix`."""
        if length == 0:
            return weight
        law = self.law("target", prefix)
        return torch.stack([self.extend(weight * law[t], (*prefix, t), length - 1) for t in range(self.vocab)])

    def output_law(self, verifier: Verifier, action: Action) -> Tensor:
        """Law of the tokens that fill the tree and one more when one step is followed by sampling from the target."""
        length = action.max_depth + 1
        emitted: dict[tuple[int, ...], float] = {}
        for weight, tree, target in self.trees(action):
            outcome = verifier.distribution(tree, target)
            tokens = tree.tokens.tolist()
            for node, row in enumerate(outcome.tolist()):
                path = prefix_of(tree.topology, tokens, node)
                for bonus, probability in enumerate(row):
                    if probability:
                        key = (*path, bonus)
                        emitted[key] = emitted.get(key, 0.0) + weight * probability
        law = torch.zeros([self.vocab] * length, dtype=torch.float64)
        for prefix, weight in emitted.items():
            law[prefix] += self.extend(torch.tensor(weight, dtype=torch.float64), prefix, length - len(prefix))
        return law

    def gap(self, verifier: Verifier, action: Action) -> float:
        """Largest difference between the output law and the target's; 0 for a lossless verifier."""
        difference = self.output_law(verifier, action) - self.target_law(action.max_depth + 1)
        return float(difference.abs().max())

    def expected_tokens(self, verifier: Verifier, action: Action) -> float:
        """Exact `E[tau + 1]` over trees and verification."""
        return sum(
            weight * float(verifier.expected_tokens(tree, target)) for weight, tree, target in self.trees(action)
        )
