"""The measured latency profile: medians of interleaved passes, of decoding steps, and of transformers' `generate`."""

from __future__ import annotations

import platform
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from selector.artifacts.origin import versions
from selector.config import Limits
from selector.decoding.policies import Policy, SelectorPolicy
from selector.decoding.sequence import SpeculativeSequence
from selector.decoding.stats import SECTIONS, Stopwatch
from selector.distributions import Sampling
from selector.engine.huggingface import HuggingFaceModel, Pair
from selector.engine.language_model import LanguageModel, prefill
from selector.engine.reference_generate import transformers_generate
from selector.engine.timing import TimedModel, Timer, TokenTimes
from selector.errors import UserError
from selector.features import SCALARS
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.checkpoint_config import CheckpointConfig
from selector.network.network import NetworkShape, SelectorNetwork
from selector.provenance import Provenance, hardware_words
from selector.trees.expansion import Expansion
from selector.trees.verifier import Verifier
from selector.trees.verifiers import get_verifier

CONTEXTS, WIDTHS = (64, 256, 512), (1, 2, 4, 8, 16, 32, 64)
SAMPLING = Sampling(1.0)
PLAIN_TOKENS = 16
LEVELS = 8  # depth from which a tree of a given width gets another branch


def measure_profile(
    pair: Pair,
    contexts: Sequence[int] = CONTEXTS,
    widths: Sequence[int] = WIDTHS,
    repeats: int = 2,
    verifier: str = "specinfer",
    action_space: Limits = (4, 8, 8),
    inputs: Literal["all", "root"] = "all",
    progress: Callable[[float], None] | None = None,
) -> LatencyProfile:
    """Measure this machine with this pair.

    Two rounds over the contexts, `repeats` times in each. Inside a round the passes of all widths and of both
    models take turns, so that a slow moment of the machine hits all of them; the first pass and step of each width is
    thrown away.

    Args:
        pair: both models, as `load_pair` gives them.
        contexts: tokens in the cache, ascending; those that the models have no positions for are left out.
        widths: new tokens of a pass, ascending from 1.
        repeats: measurements of each pass in each round.
        verifier: the one whose steps give the overhead.
        action_space: limits `(K, L1, L2)` of the network behind `selector_seconds`.
        inputs: features of that network: `all`, or those of the `root` alone.
        progress: told the share that is done.

    Returns:
        The pass times; `save` writes the file that `ddte train --profile` takes.

    Raises:
        UserError: models with no positions for the shortest context.

    Example:
        >>> pair = ddte.load_pair(ddte.PairConfig("my-target", "my-draft"))
        >>> ddte.measure_profile(pair, action_space=(4, 8, 8)).save("profile.json")
    """
    steps = (repeats + 1) * sum(1 + expansion_of_width(width).max_depth for width in widths)
    contexts = fitting_contexts(pair, contexts, max(*widths, steps))
    timer, rounds = Timer(pair.target.device), [context for _ in range(2) for context in contexts]
    with random_numbers_kept():
        policy = linear_selector(pair, action_space, inputs)
        for done, context in enumerate(rounds, 1):
            prompt = torch.randint(0, pair.target.vocab_size, (context,), generator=torch.Generator().manual_seed(done))
            measure_passes({"target": pair.target, "draft": pair.draft}, timer, prompt, widths, repeats)
            _measure_steps(pair, timer, prompt, widths, repeats, get_verifier(verifier), policy)
            measure_plain("plain", pair.target, timer, prompt)
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
        provenance=provenance(pair),
    )


def random_numbers_kept() -> AbstractContextManager[None]:
    """torch's own generators go on after the block as if nothing had been drawn in it."""
    return torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ())  # type: ignore[no-untyped-call]


def fitting_contexts(pair: Pair, contexts: Sequence[int], room: int) -> list[int]:
    """Those of `contexts` after which both models hold `room` more tokens, or one context that they hold."""
    limits = [model.max_length for model in (pair.target, pair.draft) if model.max_length is not None]
    room = max(room, PLAIN_TOKENS)
    longest = min(limits, default=max(contexts) + room) - room
    if longest < 1:
        raise UserError(f"pair holds {min(limits)} tokens: a profile needs more than {room}.")
    return [context for context in contexts if context <= longest] or [longest]


def describe_machine(pair: Pair) -> dict[str, Any]:
    """What a profile was measured on."""
    return {
        **machine_kind(pair),
        "target": pair.target.fingerprint,
        "draft": pair.draft.fingerprint,
        "versions": versions(),
    }


def provenance(pair: Pair) -> Provenance:
    """What `describe_machine` says, in words."""
    found = versions()
    return Provenance(
        target=pair.names.target.title,
        draft=pair.names.draft.title,
        hardware=hardware_words(machine_kind(pair)),
        engine=", ".join(f"{name} {found[name]}" for name in ("ddte", "torch", "transformers") if name in found),
        source="`ddte profile`",
    )


def machine_kind(pair: Pair) -> dict[str, Any]:
    """What pass times depend on beside the models: `device`, `threads`, `dtype`, and whether weights are `packed`."""
    device = pair.target.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    dtype = str(pair.dtype).removeprefix("torch.")
    kind = {"device": f"{device.type} ({name})", "threads": torch.get_num_threads(), "dtype": dtype}
    return kind | {"packed": pair.target.snapshot}


def _processor() -> str:
    """The processor's name and what it multiplies fast, which differs between machines of one name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    products = "bfloat16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "float32"
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}, {products} products"


def expansion_of_width(width: int) -> Expansion:
    """A tree of `width` rows, the root included, about `LEVELS` deep."""
    branches = max(1, -(-(width - 1) // LEVELS))
    length = (width - 1) // branches
    return Expansion(branches, width - 1 - branches * length, length).canonical()


def measure_passes(
    models: Mapping[Any, LanguageModel], timer: Timer, prompt: Tensor, widths: Sequence[int], repeats: int
) -> None:
    """One pass of each width and model, in turn; the new rows are siblings, so that they take a tree's mask.

    Seconds are kept under `(name, context, width)`.
    """
    for model in models.values():
        prefill(model, prompt.tolist())
    for repeat in range(repeats + 1):
        for width in widths:
            for name, model in models.items():
                tokens = torch.randint(0, model.vocab_size, (width,)).to(model.device)
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
    verifier: Verifier,
    policy: Policy,
) -> None:
    """What decoding steps take beside their passes, and what the policy's choices take.

    Steps of one width follow each other: each gives the memory of the one before it back, which takes milliseconds
    where that was wide.
    """
    stopwatch = Stopwatch(dict.fromkeys(SECTIONS, 0.0))
    models = TimedModel(pair.target, timer), TimedModel(pair.draft, timer)
    generator = torch.Generator(pair.target.device).manual_seed(0)
    sequence = SpeculativeSequence(*models, SAMPLING, SAMPLING, generator, stopwatch)
    sequence.prefill(prompt.tolist())
    passes: list[Any] = [sequence.target, sequence.draft]
    for width in widths:
        for repeat in range(repeats + 1):
            before = stopwatch.seconds["selector"], sum(model.seconds for model in passes)
            start = timer.now()
            with stopwatch.section("selector"):
                policy.choose(sequence)
            sequence.step(expansion_of_width(width), verifier)
            seconds = timer.now() - start
            choosing = stopwatch.seconds["selector"] - before[0]
            if repeat:
                passing = sum(model.seconds for model in passes) - before[1]
                timer.add(("overhead", width), seconds - choosing - passing)
                timer.add(("selector",), choosing)


def measure_plain(name: Hashable, model: HuggingFaceModel, timer: Timer, prompt: Tensor) -> None:
    """Seconds of each token of `generate` after the first, which the prompt's pass gives, under `(name, context)`."""
    streamer = TokenTimes(timer)
    transformers_generate(model, prompt.tolist(), PLAIN_TOKENS, SAMPLING, streamer=streamer)
    for before, after in pairwise(streamer.moments):
        timer.add((name, len(prompt)), after - before)


def linear_selector(pair: Pair, action_space: Limits, inputs: Literal["all", "root"]) -> SelectorPolicy:
    """A linear selector for the pair, whose weights have the right sizes and say nothing."""
    shape = NetworkShape(pair.target.hidden_size, pair.draft.hidden_size, len(SCALARS), action_space, inputs=inputs)
    config = CheckpointConfig(
        verifier="",
        shape=shape,
        scalars=list(SCALARS),
        default_head="regressor",
        target_fingerprint=pair.target.fingerprint,
        draft_fingerprint=pair.draft.fingerprint,
        draft_warp="same",
        sampling_range={},
        profile=asdict(LatencyProfile((1,), (1,), ((1.0,),), ((1.0,),), (0.0,), (1.0,))),
        best_static=(1, 0, 0),
        data_hash="",
    )
    return SelectorPolicy(SelectorCheckpoint(SelectorNetwork(shape), config))
