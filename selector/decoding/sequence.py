"""One sequence being decoded: both models' caches, and a step from one root to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from selector.decoding.stats import Stopwatch
from selector.distributions import Sampling, refuse_undefined, undefined, warp
from selector.engine.drafting import DraftRoot, draft_tree, follow, start_roots
from selector.engine.language_model import LanguageModel
from selector.engine.reading_draft import read, reads_target
from selector.engine.scoring import score_tree
from selector.engine.text_index import TextIndex
from selector.features import Match, Previous, RootFeatures, TargetProbs, read_target
from selector.trees.copied_chain import below, beside
from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Action, CopyExpansion, Expansion
from selector.trees.topology import Topology
from selector.trees.verifier import Verifier


class Committed(NamedTuple):
    """What a step adds to the context: the accepted path and the bonus token.

    Scored nodes below the root: `copied` ones, of which `accepted_copies` are part of `tokens`, and `drafted` ones.
    `undrafted` nodes had no draft distribution.
    """

    tokens: list[int]
    drafted: int
    copied: int
    accepted_copies: int
    undrafted: int


class SpeculativeSequence:
    """The state between steps. The last committed token is the root token; neither cache holds a row for it.

    The caches are the sequence's own, as `generator` is: any number of sequences may run on one pair of models.

    The draft's cache may lack more: `uncached` are the tokens it has to run before it can draft, the root token
    last. After an accepted leaf these are two; they are more after steps that did not draft, or copied.
    """

    def __init__(
        self,
        target: LanguageModel,
        draft: LanguageModel,
        sampling: Sampling,
        draft_sampling: Sampling,
        generator: torch.Generator,
        stopwatch: Stopwatch,
    ) -> None:
        self.target, self.draft = target.fresh(), draft.fresh()
        self.sampling, self.draft_sampling = sampling, draft_sampling
        self._generator, self._stopwatch = generator, stopwatch
        self._index = TextIndex(())
        self._uncached: list[int] = []
        self._reads = reads_target(draft)
        self._states: list[Tensor] = []  # where the draft reads them: the target's before each uncached token
        self._root: DraftRoot | None = None
        # distribution and hidden state at the token before the root token
        self._target_prev: tuple[Tensor, Tensor] | None = None
        self._draft_prev: tuple[Tensor, Tensor] | None = None

    @property
    def context_length(self) -> int:
        """Tokens before the root token."""
        return self.target.length

    @property
    def lag(self) -> int:
        """Tokens before the root token that the draft's cache lacks."""
        return len(self._uncached) - 1 if self._root is None else 0

    @property
    def match(self) -> Match | None:
        """Where the last tokens stood before; None where the root token is new. The first look indexes the text."""
        return self._index.match()

    def available(self, action: Action) -> Action:
        """The action, or its drafted part where the text has nothing to copy from."""
        return action.drafted if isinstance(action, CopyExpansion) and self.match is None else action

    @torch.inference_mode()
    def prefill(self, prompt: Sequence[int]) -> None:
        """Start with a prompt of one token or more; the draft runs it when it first drafts."""
        self.target.reset()
        self.draft.reset()
        self._index, self._uncached, self._root = TextIndex(prompt), list(prompt), None
        self._target_prev = self._draft_prev = None
        body = torch.tensor(prompt[:-1], dtype=torch.long, device=self.target.device)
        self._states = [torch.zeros(1, self.target.hidden_size, device=self.target.device)]
        if len(body):
            scores = self.target.extend(body, range(-1, len(body) - 1), last_rows=len(body) if self._reads else 1)
            self.target.keep(range(len(body)))
            probs = warp(scores.logits[-1:], self.sampling)
            self._target_prev = None if undefined(probs) else (probs[0], scores.hidden[-1])
            self._states.append(scores.hidden)

    @torch.inference_mode()
    def features(self, previous: bool = True) -> RootFeatures:
        """Features of the present root; runs the draft on it if that has not happened.

        Without `previous` those of the token before it are zeros.
        """
        target = None  # read before the draft's pass, while it is in the caches
        if previous and self._target_prev is not None:
            target = read_target(self._target_prev[0], self.draft.support)
        root = self._start()
        previous_models = self._previous(root, target)
        return root.features(previous_models, self.target.hidden_size, self.context_length, self.sampling, self.match)

    @torch.inference_mode()
    def step(self, action: Action, verifier: Verifier) -> Committed:
        """Draft, score, verify, and keep the accepted path in both caches.

        Below a node where the target has no distribution nothing can be accepted. Raises UserError when the text
        gets to such a node: only then would sampling from the target alone have failed, too.
        """
        stopwatch = self._stopwatch
        with stopwatch.section("draft"):
            tree = self._draft(action)
        with stopwatch.section("target"):
            scored = score_tree(self.target, tree, self.sampling)
        with stopwatch.section("verify"):
            broken = undefined(scored.target_probs)
            offered = tree.cut(broken) if broken else tree
            node, bonus = verifier.verify(offered, scored.target_probs, self._generator)
            if node in broken:
                refuse_undefined(scored.target_probs[node : node + 1], "target")
        with stopwatch.section("cache"):
            path = tree.topology.path(node)
            self.target.keep([0, *path])
            tokens = [*tree.path_tokens(node), bonus]
            if self._reads:
                self._keep_root(scored.hidden[[0, *path]], tokens)
            else:
                self._keep_draft(tree, node, path, tokens)
            self._target_prev = scored.target_probs[node], scored.hidden[node]
            self._index.append(tokens)
        copied = len(tree.copied)
        accepted_copies = len(set(path).intersection(tree.copied))
        return Committed(tokens, len(tree.topology) - 1 - copied, copied, accepted_copies, tree.undrafted)

    def _start(self, chain: Sequence[int] = ()) -> DraftRoot:
        """The draft at the root, or at the end of a chain of tokens below it."""
        if self._root is not None:
            return follow(self.draft, self._root, chain, self.draft_sampling) if chain else self._root
        with self._stopwatch.section("draft" if self.draft.length else "prefill"):
            if self._reads:
                states = torch.cat([states.to(self._states[-1].dtype) for states in self._states])
                read(self.draft, states, 0, len(states))
            tokens = [*self._uncached, *chain]
            rows = sorted({len(self._uncached) - 1, len(tokens) - 1})
            roots = start_roots(self.draft, tokens, rows, self.draft_sampling)
        self._root = roots[0]
        return roots[-1]

    def _draft(self, action: Action) -> DraftTree:
        if not isinstance(action, CopyExpansion):
            return self._drafted(action)
        chain, root_token = self._index.copy(action.length), self._uncached[-1]
        if action.beside or action.drafted.max_depth == 0:
            return beside(self._drafted(action.drafted), chain)
        return below(self._drafted(action.drafted, chain), root_token, chain)

    def _drafted(self, expansion: Expansion, chain: Sequence[int] = ()) -> DraftTree:
        """A tree from the root, or from the end of a chain of tokens below it."""
        if expansion.max_depth > 0:
            return draft_tree(self.draft, self._start(chain), expansion, self.draft_sampling, self._generator)
        token = torch.tensor(self._uncached[-1:], device=self.target.device)
        columns = self.target.vocab_size if self.draft.support is None else len(self.draft.support)
        nothing = torch.zeros(0, columns, device=self.target.device)
        return DraftTree(Topology(), token, nothing, self.draft.support)

    def _keep_draft(self, tree: DraftTree, node: int, path: list[int], tokens: list[int]) -> None:
        """Keep the accepted path's rows; what the draft did not run goes to `uncached`.

        So does the accepted node's token where its draft distribution was not computed.
        """
        root, inner = self._root, len(tree.draft_probs)
        if root is None:
            self._uncached += tokens
            return
        kept = [root.row + above for above in path if above < inner]
        self._root, self._draft_prev = None, None
        if node == 0:
            self._draft_prev = root.probs[-1], root.hidden[-1]
        elif tree.topology.children[node] and tree.draft_hidden is not None:
            self._draft_prev = tree.draft_probs[node], tree.draft_hidden[node]
        elif node < inner:
            kept.pop()
        self.draft.keep([*range(root.row + 1), *kept])
        self._uncached = tokens[len(kept) :]

    def _keep_root(self, states: Tensor, tokens: list[int]) -> None:
        """Of a draft that reads the target: drafted rows read its own states, so accepted tokens are run again.

        `states`: the target's before each of the committed `tokens`.
        """
        root = self._root
        if root is None:
            self._uncached, self._states = [*self._uncached, *tokens], [*self._states, states]
            return
        self.draft.keep(range(root.row + 1))
        self._root, self._uncached, self._states = None, tokens, [states]
        self._draft_prev = (root.probs[-1], root.hidden[-1]) if len(tokens) == 1 else None

    def _previous(self, root: DraftRoot, target: TargetProbs | None) -> Previous | None:
        """Both models at the token before the root token; None where one of them has no distribution there."""
        draft = (root.probs[-2], root.hidden[-2]) if len(root.probs) > 1 else self._draft_prev
        if self._target_prev is None or target is None or draft is None or undefined(draft[0][None]):
            return None
        return Previous(target, draft[0], self._target_prev[1], draft[1])
