"""Pass times of a pair from its shapes alone: random models of few layers are timed, the other layers extrapolated.

Time is linear in equal layers: it is measured at two depths, and the line through both is followed to the true depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

import torch

from selector.config import Limits, PairConfig
from selector.decoding.profiling import WIDTHS, measure_profile
from selector.engine.huggingface import MAP, SAME, Pair, pair_with, pick_device, pick_dtype, target_source
from selector.engine.shapes import Shape, random_model, read_shape
from selector.errors import UserError
from selector.latency import LatencyProfile
from selector.pair_names import PairNames
from selector.provenance import Provenance

CONTEXTS = (64, 512)  # attention is linear in the context, and so is a profile between its points
NOTE = (
    "Random models of these shapes: {target} layers of the target's {target_depth} and {draft} of the draft's "
    "{draft_depth} were timed; the others are extrapolated, as is what a step and a token of plain `generate` take."
)


def measure_shapes(
    config: PairConfig,
    action_space: Limits,
    inputs: Literal["all", "root"],
    widths: Sequence[int] = WIDTHS,
    repeats: int = 2,
) -> LatencyProfile:
    """Measure this machine with random models of the shapes of a pair; `config` names hub ids, folders or config.json.

    Raises UserError for a model without such a file, and for one whose layers differ in size.
    """
    if config.quantization != "none":
        raise UserError(
            f"pair.quantization is {config.quantization!r}: random models are not quantized, set it to none."
        )
    if config.threads:
        torch.set_num_threads(config.threads)
    shapes = [
        read_shape("target", target_source(config), config.revision),
        read_shape("draft", config.draft, config.draft_revision),
    ]

    def measured(place: int) -> LatencyProfile:
        pair = random_pair(config, [(shape.config, shape.depths[place]) for shape in shapes])
        return measure_profile(pair, CONTEXTS, widths, repeats, action_space=action_space, inputs=inputs)

    few = measured(0)
    more = measured(1) if any(shape.factor for shape in shapes) else few
    return replace(extrapolated(few, more, *shapes), provenance=_provenance(few, config, *shapes))


def random_pair(config: PairConfig, shapes: Sequence[tuple[Any, int]]) -> Pair:
    """Random models of `(configuration, layers)` of target and draft, as a pair without names and tokenizer."""
    device = torch.device(pick_device("auto" if config.device == MAP else config.device))
    places = [device, device if config.draft_device == SAME else torch.device(config.draft_device)]
    dtype, attention = pick_dtype(config.dtype, device), config.attn_implementation
    models = [random_model(*shape, dtype, place, attention) for shape, place in zip(shapes, places, strict=True)]
    return pair_with(models[0], None, replace(config, target="", draft=""), models[1])


def extrapolated(few: LatencyProfile, more: LatencyProfile, target: Shape, draft: Shape) -> LatencyProfile:
    """The line through two profiles, of the smaller and of the larger depths, at the true depths.

    What a step takes outside of the models grows with the layers of both, whose caches it moves.
    """
    layers = [target.depths[place] + draft.depths[place] for place in (0, 1)]
    both = (target.depth + draft.depth - layers[0]) / (layers[1] - layers[0]) if layers[1] > layers[0] else 0.0

    def line(name: str, factor: float) -> Any:
        return _line(getattr(few, name), getattr(more, name), factor)

    return LatencyProfile(
        contexts=few.contexts,
        widths=few.widths,
        target_seconds=line("target_seconds", target.factor),
        draft_seconds=line("draft_seconds", draft.factor),
        overhead_seconds=line("overhead_seconds", both),
        plain_seconds=line("plain_seconds", target.factor),
        selector_seconds=min(few.selector_seconds, more.selector_seconds),
        machine={name: value for name, value in few.machine.items() if name not in ("target", "draft")},
    )


def _line(few: Any, more: Any, factor: float) -> Any:
    """`few + factor (more - few)` of numbers or of tables of them; noise does not make deeper models faster."""
    if isinstance(few, tuple):
        return tuple(_line(*entry, factor) for entry in zip(few, more, strict=True))
    return few + factor * max(more - few, 0.0)


def _provenance(found: LatencyProfile, config: PairConfig, target: Shape, draft: Shape) -> Provenance:
    """What was timed, and what was not."""
    folders = {name: getattr(config, name).removesuffix("/config.json") for name in ("target", "draft")}
    names = PairNames.of(asdict(config) | folders)
    note = NOTE.format(
        target=" and ".join(map(str, sorted(set(target.depths)))), target_depth=target.depth,
        draft=" and ".join(map(str, sorted(set(draft.depths)))), draft_depth=draft.depth,
    )  # fmt: skip
    return replace(
        found.provenance, target=names.target.title, draft=names.draft.title,
        source="`ddte profile --shapes-of`", note=note,
    )  # fmt: skip
