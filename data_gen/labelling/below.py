"""Labels of trees that are drafted below the end of a copied chain.

Such a tree hangs at a node of weight `R_m`, the chance that all `m` copied tokens are accepted: what a verifier does
below depends on what is above by that number alone. So super-trees below the chain's end, drafted from there, give
every tree's share of `E[tau + 1]`, and `1 + R_1 + .. + R_m` is the copied chain's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from data_gen.labelling.copied_chain import CopiedChain, chain_rows
from data_gen.labelling.draft_forest import draw_forest, inner_nodes
from data_gen.labelling.forest import Forest, by_root
from data_gen.labelling.scoring import Scorer
from selector.distributions import Sampling, warp
from selector.engine.drafting import DraftRoot
from selector.engine.language_model import LanguageModel
from selector.trees.efficiency import label_drawing
from selector.trees.expansion import ActionSpace, CopyExpansion, Expansion


class ChainEnd(NamedTuple):
    """A root, and how many tokens are copied from it on."""

    root: int
    copied: int


@dataclass(frozen=True)
class Below:
    """Super-trees below the ends of copied chains, as many of each as of a root."""

    ends: list[ChainEnd]
    forest: Forest

    def score(self, scorer: Scorer, chains: Sequence[CopiedChain | None]) -> Tensor:
        """The target's distributions at the forest's inner nodes."""
        found = self._chains(chains)
        rows = [chain.row + copied - 1 for chain, copied in found]
        return scorer.forest(self.forest, rows, [chain.target_probs[copied] for chain, copied in found])

    def add_labels(
        self,
        labels: Mapping[str, Tensor],
        target_probs: Tensor,
        chains: Sequence[CopiedChain | None],
        space: ActionSpace,
    ) -> None:
        """Add what is drafted to the copied chains' own labels, per verifier `[super-trees, actions]`."""
        own, samples = ActionSpace(*self.forest.limits), len(self.forest.trunks) // len(self.ends)
        columns = [own.index(tree) for tree in space.below]
        weights = [chain.reach[copied] for chain, copied in self._chains(chains)]
        for number, drawing in enumerate(by_root(self.forest.drawings(target_probs, weights=weights))):
            root, copied = self.ends[number // samples]
            actions = [space.index(CopyExpansion(copied, tree)) for tree in space.below]
            for name, values in label_drawing(drawing, own, list(labels)).items():
                labels[name][root * samples + number % samples, actions] += values[columns] - 1

    def _chains(self, chains: Sequence[CopiedChain | None]) -> list[tuple[CopiedChain, int]]:
        return [(chain, copied) for root, copied in self.ends if (chain := chains[root])]


def limits_below(space: ActionSpace) -> Expansion:
    """The smallest super-tree that has all of the space's trees below a copied chain."""
    return Expansion(*map(max, zip((1, 0, 0), *space.below, strict=True)))


def deepest(space: ActionSpace) -> int:
    """How far below a root labels of a space look at most."""
    return max(space.limits.max_depth, max(space.copied, default=0) + limits_below(space).max_depth)


def inner_below(space: ActionSpace) -> int:
    """Nodes from which something is drawn below one root's copied chains, when no two branches share one."""
    return len(space.copied) * inner_nodes(limits_below(space)) if space.below else 0


def draw_below(
    draft: LanguageModel,
    starts: Sequence[DraftRoot],
    chains: Sequence[tuple[int, ...]],
    row: int,
    space: ActionSpace,
    num_samples: int,
    sampling: Sampling,
    seeds: Sequence[int],
) -> Below | None:
    """Draw below what could be copied at each root; None where there is nothing to do.

    `row`: the draft's next pending one. One pass over the chains comes first; `seeds` are the roots' own.
    """
    lengths = sorted(space.copied) if space.below else []
    ends = [ChainEnd(root, length) for root, chain in enumerate(chains) if chain for length in lengths]
    if not ends:
        return None
    tokens, parents, first = chain_rows(chains, [start.row for start in starts], row)
    scores = draft.extend(torch.tensor(tokens, device=draft.device), parents)
    places = [first[root] + copied - 1 - row for root, copied in ends]
    logits, hidden = scores.logits[places], scores.hidden[places]
    probs = warp(logits, sampling)
    roots = [
        DraftRoot(
            tokens[place],
            row + place,
            probs[end : end + 1],
            logits[end : end + 1],
            hidden[end : end + 1],
            draft.support,
        )
        for end, place in enumerate(places)
    ]
    own_seeds = [seeds[root] + copied for root, copied in ends]
    return Below(ends, draw_forest(draft, roots, limits_below(space), num_samples, sampling, own_seeds))
