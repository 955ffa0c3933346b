"""Measuring a machine: medians of interleaved passes, steps, and tokens of transformers' own `generate`."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from selector.artifacts import versions
from selector.distributions import Sampling
from selector.engine.drafting import Root, draft_tree, start_root
from selector.engine.huggingface import Pair
from selector.engine.language_model import LanguageModel, prefill
from selector.engine.reference_generate import transformers_generate
from selector.engine.scoring import score_tree
from selector.engine.timing import TimedModel, Timer
from selector.features import SCALARS, Previous, root_features, target_law
from selector.latency import LatencyProfile
from selector.network.network import NetworkShape, SelectorNetwork
from selector.network.numpy_forward import SingleRoot
from selector.trees.expansion import Expansion
from selector.trees.verifiers import get_verifier

CONTEXTS, WIDTHS = (64, 256, 512), (1, 2, 4, 8, 16, 32, 64)
SAMPLING = Sampling(1.0)
PLAIN_TOKENS = (4, 16)  # the difference of two lengths leaves the prompt's pass out
LEVELS = 8  # depth from which a tree of a given width gets another branch


def measure_profile(
    pair: Pair,
    contexts: Sequence[int] = CONTEXTS,
    widths: Sequence[int] = WIDTHS,
    repeats: int = 2,
    verifier: str = "specinfer",
    action_space: tuple[int, int, int] = (4, 8, 8),
    inputs: Literal["all", "root"] = "all",
    progress: Callable[[float], None] | None = None,
) -> LatencyProfile:
    """Measure this machine with this pair.

    Two rounds over the contexts, `repeats` times in each. Inside a round the passes of all widths and of both
    models take turns, so that a slow moment of the machine hits all of them; the first of each is thrown away.
    `verifier` is the one whose steps give the overhead; `action_space` and `inputs` are those of the network
    behind `selector_seconds`; `progress` is told the share that is done.
    """
    timer, selector = Timer(pair.target.device), _LinearSelector(pair, action_space, inputs)
    rounds = [context for _ in range(2) for context in contexts]
    for done, context in enumerate(rounds, 1):
        prompt = torch.randint(0, pair.target.vocab_size, (context,), generator=torch.Generator().manual_seed(done))
        _measure_passes(pair, timer, prompt, widths, repeats)
        _measure_steps(pair, timer, prompt, widths, repeats, verifier, selector)
        _measure_plain(pair, timer, prompt)
        if progress is not None:
            progress(done / len(rounds))
    return LatencyProfile(
        contexts=tuple(contexts),
        widths=tuple(widths),
        target_seconds=tuple(tuple(timer.median("target", c, w) for w in widths) for c in contexts),
        draft_seconds=tuple(tuple(timer.median("draft", c, w) for w in widths) for c in contexts),
        overhead_seconds=tuple(timer.median("overhead", w) for w in widths),
        plain_seconds=tuple(timer.median("plain", c) for c in contexts),
        selector_seconds=timer.median("selector"),
        machine=describe_machine(pair),
    )


def describe_machine(pair: Pair) -> dict[str, Any]:
    """What a profile was measured on."""
    device = pair.target.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
        "dtype": str(pair.dtype).removeprefix("torch."),
        "target": pair.target.fingerprint,
        "draft": pair.draft.fingerprint,
        "versions": versions(),
    }


def expansion_of_width(width: int) -> Expansion:
    """A tree of `width` rows, the root included, about `LEVELS` deep."""
    branches = max(1, -(-(width - 1) // LEVELS))
    length = (width - 1) // branches
    return Expansion(branches, width - 1 - branches * length, length).canonical()


def _measure_passes(pair: Pair, timer: Timer, prompt: Tensor, widths: Sequence[int], repeats: int) -> None:
    """One pass of each width and model, in turn; the new rows are siblings, so that they take a tree's mask."""
    models: dict[str, LanguageModel] = {"target": pair.target, "draft": pair.draft}
    for model in models.values():
        prefill(model, prompt.tolist())
    for repeat in range(repeats + 1):
        for width in widths:
            tokens = torch.randint(0, pair.target.vocab_size, (width,)).to(pair.target.device)
            for name, model in models.items():
                start = timer.now()
                model.extend(tokens, [-1] * width)
                if repeat:
                    timer.add((name, len(prompt), width), timer.now() - start)
                model.keep([])


def _measure_steps(
    pair: Pair,
    timer: Timer,
    prompt: Tensor,
    widths: Sequence[int],
    repeats: int,
    verifier_name: str,
    selector: _LinearSelector,
) -> None:
    """What a step takes beside its passes: laws, draws, the tree, verification, keeping the path; and the selector.

    The selector is timed where decoding runs it: alone it is twice as fast, with all that it reads in the caches.
    """
    verifier, generator = get_verifier(verifier_name), torch.Generator(pair.target.device).manual_seed(0)
    target, draft = TimedModel(pair.target, timer), TimedModel(pair.draft, timer)

    def step(expansion: Expansion) -> float:
        choosing = timer.run(None, selector.read)
        root = start_root(draft, [int(prompt[-1])], SAMPLING)
        choosing += timer.run(None, lambda: selector.choose(root))
        tree = draft_tree(draft, root, expansion, SAMPLING, generator)
        scored = score_tree(target, tree, SAMPLING)
        verifier.verify(tree, scored.target_probs, generator)
        for model in (pair.target, pair.draft):
            model.keep([])
        selector.previous = scored.target_probs[0], scored.hidden[0]
        return choosing

    for repeat in range(repeats + 1):
        for width in widths:
            target.seconds = draft.seconds = 0.0
            expansion = expansion_of_width(width)
            start = timer.now()
            choosing = step(expansion)
            seconds = timer.now() - start
            if repeat:
                timer.add(("overhead", width), seconds - choosing - target.seconds - draft.seconds)
                timer.add(("selector",), choosing)


def _measure_plain(pair: Pair, timer: Timer, prompt: Tensor) -> None:
    """Seconds a token of `generate`, without the prompt's pass."""
    short, long = (
        timer.run(None, lambda n=count: transformers_generate(pair.target, prompt.tolist(), n, SAMPLING))  # type: ignore[misc]
        for count in PLAIN_TOKENS
    )
    timer.add(("plain", len(prompt)), max(long - short, 0.0) / (PLAIN_TOKENS[1] - PLAIN_TOKENS[0]))


class _LinearSelector:
    """Features and choice as in decoding, by a linear selector whose weights have the right sizes."""

    def __init__(self, pair: Pair, action_space: tuple[int, int, int], inputs: Literal["all", "root"]) -> None:
        target, draft = pair.target, pair.draft
        sizes = target.hidden_size, draft.hidden_size, len(SCALARS)
        network = SelectorNetwork(NetworkShape(*sizes, action_space, inputs=inputs))
        self._reads_previous = inputs == "all"
        flat = LatencyProfile((1,), (1,), ((1.0,),), ((1.0,),), (0.0,), (1.0,))
        self._network, self._prices = SingleRoot(network, flat), network.prices.numpy()
        self._support = draft.support
        law = torch.softmax(torch.randn(target.vocab_size, device=target.device), 0)
        self.previous = law, torch.zeros(target.hidden_size, device=target.device)
        self.read()

    def read(self) -> None:
        """Before the draft's pass: the target's law of the last step."""
        if self._reads_previous:
            self._target_law = target_law(self.previous[0], self._support)

    @torch.inference_mode()
    def choose(self, root: Root) -> None:
        """After it."""
        state = self.previous[1]
        previous = None
        if self._reads_previous:
            previous = Previous(self._target_law, root.laws[-1], state, root.hidden[-1])
        features = root_features(
            previous,
            draft_probs_root=root.laws[-1],
            draft_logits_root=root.logits[-1],
            draft_hidden_root=root.hidden[-1],
            target_hidden_size=len(state),
            context_length=1,
            sampling=SAMPLING,
        )
        states = np.concatenate([getattr(features, name).numpy() for name in self._network.hidden])
        int(np.argmax(self._network.efficiency(states, features.scalars.numpy()) - self._prices))
