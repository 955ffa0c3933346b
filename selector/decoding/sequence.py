"""One sequence being decoded: both models' caches, and a step from one root to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from selector.decoding.stats import Stopwatch
from selector.distributions import Sampling, refuse_undefined, undefined, warp
from selector.engine.drafting import DraftRoot, draft_tree, start_root
from selector.engine.language_model import LanguageModel
from selector.engine.reading_draft import read, reads_target
from selector.engine.scoring import score_tree
from selector.features import Previous, RootFeatures, TargetProbs, read_target
from selector.trees.draft_tree import DraftTree
from selector.trees.expansion import Expansion
from selector.trees.topology import Topology
from selector.trees.verifier import Verifier


class Committed(NamedTuple):
    """What a step adds to the context: the accepted path and the bonus token.

    `nodes` were scored; `undrafted` of them had no draft distribution.
    """

    tokens: list[int]
    nodes: int
    undrafted: int


class SpeculativeSequence:
    """The state between steps. The last committed token is the root token; neither cache holds a row for it.

    The caches are the sequence's own, as `generator` is: any number of sequences may run on one pair of models.

    The draft's cache may lack more: `uncached` are the tokens it has to run before it can draft, the root token
    last. After an accepted leaf these are two; they are more after steps that did not draft.
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

    @torch.inference_mode()
    def prefill(self, prompt: Sequence[int]) -> None:
        """Start with a prompt of one token or more; the draft runs it when it first drafts."""
        self.target.reset()
        self.draft.reset()
        self._uncached, self._root = list(prompt), None
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
        return root.features(previous_models, self.target.hidden_size, self.context_length, self.sampling, None)

    @torch.inference_mode()
    def step(self, expansion: Expansion, verifier: Verifier) -> Committed:
        """Draft, score, verify, and keep the accepted path in both caches.

        Below a node where the target has no distribution nothing can be accepted. Raises UserError when the text
        gets to such a node: only then would sampling from the target alone have failed, too.
        """
        stopwatch = self._stopwatch
        with stopwatch.section("draft"):
            tree = self._draft(expansion)
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
        return Committed(tokens, len(tree.topology), tree.undrafted)

    def _start(self) -> DraftRoot:
        if self._root is None:
            with self._stopwatch.section("draft" if self.draft.length else "prefill"):
                if self._reads:
                    states = torch.cat([states.to(self._states[-1].dtype) for states in self._states])
                    read(self.draft, states, 0, len(states))
                self._root = start_root(self.draft, self._uncached, self.draft_sampling)
        return self._root

    def _draft(self, expansion: Expansion) -> DraftTree:
        if expansion.max_depth > 0:
            return draft_tree(self.draft, self._start(), expansion, self.draft_sampling, self._generator)
        token = torch.tensor(self._uncached[-1:], device=self.target.device)
        columns = self.target.vocab_size if self.draft.support is None else len(self.draft.support)
        nothing = torch.zeros(0, columns, device=self.target.device)
        return DraftTree(Topology(), token, nothing, self.draft.support)

    def _keep_draft(self, tree: DraftTree, node: int, path: list[int], tokens: list[int]) -> None:
        """Keep the accepted path's rows; what the draft did not run goes to `uncached`."""
        root, inner = self._root, len(tree.draft_probs)
        if root is None:
            self._uncached.append(tokens[-1])
            return
        self.draft.keep([*range(root.row + 1), *(root.row + above for above in path if above < inner)])
        self._root = None
        if node < inner and tree.draft_hidden is not None:
            self._uncached, self._draft_prev = tokens[-1:], (tree.draft_probs[node], tree.draft_hidden[node])
        elif node == 0:
            self._uncached, self._draft_prev = tokens[-1:], (root.probs[-1], root.hidden[-1])
        else:
            self._uncached, self._draft_prev = tokens[-2:], None

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
