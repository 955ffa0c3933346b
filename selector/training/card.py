"""The README.md of an exported selector."""

from __future__ import annotations

import json
from typing import Any

from huggingface_hub import ModelCard

from selector.network.checkpoint_config import CheckpointConfig
from selector.network.hub import card_data
from selector.trees.expansion import ActionSpace

FIGURE_COLUMNS = ("policy", "metric", "value", "low", "high", "n_prompts")
TEMPLATE = """\
# Draft-tree selector for {verifier} verification

A small network that picks, at every step of speculative decoding, the shape `(K, L1, L2)` of the drafted tree: a
trunk of `L1` tokens, then `K` branches of `L2` tokens. It never changes what is generated, only how fast.

| | |
| --- | --- |
| verifier | {verifier} |
| action space | K up to {branches}, L1 up to {trunk}, L2 up to {length} |
| default head | {head} |
| best static tree on the training prompts | {best_static} |
| sampling in training | temperature {temperature}, top-p {top_p}; draft warp: {draft_warp} |
| target | {target} |
| draft | {draft} |
| type of weights | {weights}; another pair is refused |
| data set | manifest `{data_hash}` |
| machine of the latency profile | {machine} |

## Use

```python
import ddte

decoder = ddte.Decoder.from_checkpoint("THIS_FOLDER"{given})
print(decoder.generate("Write a haiku about trees.", max_new_tokens=64).text)
```
{hub_code}
The policy head knows the machine that it was trained for. The regressor head predicts tokens a step and weighs them
against the pass times of the machine at hand, so it also serves others. Sampling settings outside the range above have
not been seen in training.

## Figures on the validation prompts

Throughput is expected tokens over step time, by the labels and the latency profile. `learned` is 0 where the selector
chooses as the best static tree does; `corrected` is 1 where the MLP was worth keeping on top of the linear model. Where
`validation_ratio_to_static`, the selector's own cost included, is below 1, decoding takes the best static tree unless
a head is named. These prompts also chose the epoch and the head, so the figures flatter a little{elsewhere}.

{metrics}
"""
HUB_CODE = """
Or where you generate already, with a target and its inputs; the draft and the selector are loaded in each call:

```python
target.generate(**inputs, custom_generate="THIS_FOLDER", trust_remote_code=True)
```
"""


def model_card(config: CheckpointConfig, evaluation: list[dict[str, Any]] | None = None, hub_code: bool = False) -> str:
    """The card of a checkpoint; `evaluation` are rows of `metrics.json`, of which those of its verifier are shown.

    `hub_code`: whether the code for `custom_generate` lies beside it.
    """
    rows = [row for row in evaluation or [] if row["verifier"] == config.verifier]
    return str(ModelCard(f"---\n{card_data(config, rows).to_yaml()}\n---\n\n{_text(config, rows, hub_code)}"))


def _text(config: CheckpointConfig, rows: list[dict[str, Any]], hub_code: bool) -> str:
    """Markdown."""
    branches, trunk, length = ActionSpace(*config.shape.action_space).limits
    card = TEMPLATE.format(
        verifier=config.verifier,
        branches=branches,
        trunk=trunk,
        length=length,
        head=config.default_head,
        best_static=config.best_static,
        temperature=_span(config.sampling_range["temperature"]),
        top_p=_span(config.sampling_range["top_p"]),
        draft_warp=config.draft_warp,
        given="" if config.models.target.name else ', target="TARGET", draft="DRAFT"',
        hub_code=HUB_CODE if hub_code else "",
        target=config.models.target.describe(config.target_fingerprint),
        draft=config.models.draft.describe(config.draft_fingerprint),
        weights=config.models.weights or "not recorded",
        data_hash=config.data_hash[:16],
        machine=json.dumps(config.profile["machine"]) if config.profile["machine"] else "not named",
        elsewhere="; held-out figures stand below" if rows else "",
        metrics=_table(("figure", "value"), [(name, f"{value:.4g}") for name, value in config.metrics.items()]),
    )
    if rows:
        card += "\n## Figures on held-out prompts\n\nWith intervals over prompts.\n\n"
        card += _table(FIGURE_COLUMNS, [tuple(_cell(row[column]) for column in FIGURE_COLUMNS) for row in rows]) + "\n"
    return card


def _span(limits: list[float]) -> str:
    low, high = limits
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
