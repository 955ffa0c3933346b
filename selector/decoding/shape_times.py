"""Pass times of a pair from its shapes alone: random models of few layers are timed, the other layers extrapolated.

Time is linear in equal layers. One pair has the true heads and few layers; what a layer takes is the difference of two
depths of models with hardly any head, timed in turn, so that neither noise of the heads nor a slow moment is in it.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import asdict, replace

import torch
from transformers import PreTrainedModel

from selector.config import Inputs, Limits, PairConfig
from selector.decoding.profiling import WIDTHS, measure_passes, measure_plain, measure_profile, random_numbers_kept
from selector.engine.huggingface import (
    MAP,
    SAME,
    HuggingFaceModel,
    Pair,
    pair_with,
    pick_device,
    pick_dtype,
    target_source,
)
from selector.engine.shapes import Shape, random_model, read_shape
from selector.engine.timing import Timer
from selector.errors import UserError
from selector.latency import LatencyProfile
from selector.pair_names import PairNames
from selector.provenance import Provenance

Table = tuple[tuple[float, ...], ...]
CONTEXTS = (64, 512)  # attention is linear in the context, and so is a profile between its points
HEAD = 256  # tokens of the models that layers are timed with
NOTE = (
    "Random models of these shapes. With their heads, {0.depths[0]} of the target's {0.depth} layers and {1.depths[0]} "
    "of the draft's {1.depth} were timed; each other layer adds what one of layers {0.depths[0]} to {0.depths[1]} and "
    "{1.depths[0]} to {1.depths[1]} takes in models without heads. What a step takes beside passes is that of the few "
    "layers."
)


def measure_shapes(
    config: PairConfig,
    widths: Sequence[int] = WIDTHS,
    repeats: int = 2,
    action_space: Limits = (4, 8, 8),
    inputs: Inputs = "all",
) -> LatencyProfile:
    """Measure this machine with random models of the shapes of a pair; `config` names hub ids, folders or config.json.

    `action_space` and `inputs` are as in `measure_profile`. Raises UserError for a model without such a file, and for
    one whose layers differ in size.
    """
    if config.quantization != "none":
        raise UserError(
            f"pair.quantization is {config.quantization!r}: random models are not quantized, set it to none."
        )
    if config.threads:
        torch.set_num_threads(config.threads)
    target = read_shape("target", target_source(config), config.revision)
    draft = read_shape("draft", config.draft, config.draft_revision)
    base = measure_profile(
        _shallow_pair(config, target, draft), CONTEXTS, widths, repeats, action_space=action_space, inputs=inputs
    )
    gc.collect()  # so that those models are gone before the next ones come
    layers = time_layers(config, target, draft, base.contexts, widths, repeats)
    return replace(
        base,
        target_seconds=_deeper(base.target_seconds, target, layers["target"]),
        draft_seconds=_deeper(base.draft_seconds, draft, layers["draft"]),
        plain_seconds=_deeper((base.plain_seconds,), target, layers["plain"])[0],
        machine={name: value for name, value in base.machine.items() if name not in ("target", "draft")},
        provenance=_provenance(base, config, target, draft),
    )


def time_layers(
    config: PairConfig, target: Shape, draft: Shape, contexts: Sequence[int], widths: Sequence[int], repeats: int
) -> dict[str, Table]:
    """Seconds of a layer `[contexts][widths]` of the `target` and the `draft`, and `[1][contexts]` in `plain` generate.

    Models of both depths take turns, as in `measure_profile`.
    """
    models = {
        (name, depth): HuggingFaceModel(_random_model(config, name, shape, depth, HEAD))
        for name, shape in (("target", target), ("draft", draft))
        for depth in shape.depths
    }
    timer = Timer(next(iter(models.values())).device)
    with random_numbers_kept():
        for context in [context for _ in range(2) for context in contexts]:
            prompt = torch.randint(0, HEAD, (context,))
            measure_passes(models, timer, prompt, widths, repeats)
            for depth in target.depths:
                measure_plain(("plain", depth), models["target", depth], timer, prompt)

    def layer(name: str, shape: Shape, *key: int) -> float:
        few, more = (timer.median((name, depth), *key) for depth in shape.depths)
        return max(more - few, 0.0) / (shape.depths[1] - shape.depths[0])  # noise makes no model faster

    return {
        "target": tuple(tuple(layer("target", target, c, w) for w in widths) for c in contexts),
        "draft": tuple(tuple(layer("draft", draft, c, w) for w in widths) for c in contexts),
        "plain": (tuple(layer("plain", target, c) for c in contexts),),
    }


def _shallow_pair(config: PairConfig, target: Shape, draft: Shape) -> Pair:
    """Random models of the smaller depths with their true heads, as a pair without names and tokenizer."""
    shapes = {"target": target, "draft": draft}
    models = [_random_model(config, name, shape, shape.depths[0]) for name, shape in shapes.items()]
    return pair_with(models[0], None, replace(config, target="", draft=""), models[1])


def _random_model(config: PairConfig, name: str, shape: Shape, layers: int, head: int | None = None) -> PreTrainedModel:
    """The `target` or the `draft` in type and place of `config`; `head`: tokens in the place of the vocabulary."""
    device = torch.device(pick_device("auto" if config.device == MAP else config.device))
    dtype, tokens = pick_dtype(config.dtype, device), head or shape.config.vocab_size
    if name == "draft" and config.draft_device != SAME:
        device = torch.device(config.draft_device)
    return random_model(shape.config, layers, tokens, dtype, device, config.attn_implementation)


def _deeper(seconds: Table, shape: Shape, layer: Table) -> Table:
    """The times of the true depth from those of the smaller one, and from the times of a layer."""
    missing = shape.depth - shape.depths[0]
    return tuple(
        tuple(few + missing * one for few, one in zip(*rows, strict=True)) for rows in zip(seconds, layer, strict=True)
    )


def _provenance(found: LatencyProfile, config: PairConfig, target: Shape, draft: Shape) -> Provenance:
    """What was timed, and what was not."""
    folders = {name: getattr(config, name).removesuffix("/config.json") for name in ("target", "draft")}
    names = PairNames.of(asdict(config) | folders)
    note = NOTE.format(target, draft)
    return replace(
        found.provenance, target=names.target.title, draft=names.draft.title,
        source="`ddte profile --shapes-of`", note=note,
    )  # fmt: skip
