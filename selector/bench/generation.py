"""`ddte bench generate`: roots a minute, where the time goes, and the cost of the same labels by drawings an action."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table

from data_gen.labelling.label_unit import SECTIONS, label_unit
from data_gen.prompts.prompts import load_prompts
from data_gen.work_units import WorkUnit, plan_units
from selector.artifacts.claims import check_file
from selector.artifacts.writing import write_json
from selector.config import Config
from selector.decoding.stats import Stopwatch
from selector.engine.drafting import draft_tree, start_root
from selector.engine.language_model import LanguageModel, prefill
from selector.engine.prompts import encode_chat
from selector.engine.scoring import score_tree
from selector.errors import UserError
from selector.trees.expansion import ActionSpace, Expansion
from selector.trees.verifiers import get_verifier

if TYPE_CHECKING:
    from selector.engine.huggingface import Pair

MEASURED_ACTIONS = 6


def bench_generate(
    config: Config, num_units: int, json: Path | None = None, pair: Pair | None = None, console: Console | None = None
) -> list[dict[str, Any]]:
    """Label the first `num_units` units of the plan, print the table, return its rows: one a unit, and all together.

    `pair` saves loading `config.pair`. Raises UserError for bad settings before anything is loaded.
    """
    console = console or Console()
    if num_units < 1:
        raise UserError(f"units is {num_units}: give 1 or more.")
    if json:
        check_file("json", json)
    planned = plan_units(config.generate, load_prompts(config.generate.prompts, config.generate.prompts_per_task))
    space = ActionSpace(*astuple(config.action_space))
    if pair is None:
        from selector.engine.huggingface import load_pair

        pair = load_pair(config.pair)
    template = config.generate.chat_template
    units = [(unit, encode_chat(pair.tokenizer, unit.prompt.messages, template)) for unit in planned[:num_units]]
    warm_up = replace(config, generate=replace(config.generate, max_new_tokens=1))
    measure(pair, *units[0], warm_up, ActionSpace(2, 0, 1))
    rows = [measure(pair, unit, tokens, config, space) for unit, tokens in units]
    rows.append(total(rows))
    console.print(bench_table(rows))
    console.print(shares_table(rows))
    console.print(
        f"By action: {config.generate.num_samples} drawings each of {', '.join(rows[0]['measured_actions'])} at the "
        f"prompt's end, scaled to all {len(space)} actions. The trajectory is needed either way and is left out of "
        "the last two columns.",
        highlight=False,
    )
    if json:
        write_json(json, rows)
    return rows


def measure(pair: Pair, unit: WorkUnit, tokens: list[int], config: Config, space: ActionSpace) -> dict[str, Any]:
    """The row of one unit; seconds are those of the whole unit."""
    seconds = dict.fromkeys((*SECTIONS, "other"), 0.0)
    stopwatch = Stopwatch(seconds)
    records = label_unit(pair.target, pair.draft, tokens, unit, config.generate, space, pair.end_ids, stopwatch)
    stopwatch.switch("other")
    measured = spread(space, MEASURED_ACTIONS)
    by_action = by_action_seconds(pair.target, pair.draft, tokens, unit, config, measured) * len(space)
    return {
        "unit": unit.prompt.id,
        "temperature": unit.sampling.temperature,
        "top_p": unit.sampling.top_p,
        "roots": len(records),
        "actions": len(space),
        "verifiers": list(config.generate.verifiers),
        "measured_actions": [str(expansion) for expansion in measured],
        "seconds": seconds,
        "by_action_seconds": by_action * len(records),
        **rates(len(records), seconds, by_action * len(records)),
    }


def rates(roots: int, seconds: dict[str, float], by_action: float) -> dict[str, float]:
    """What the table shows of `roots` roots: both ways to their labels start from the same trajectory."""
    labelled = sum(seconds.values()) - seconds["trajectory"]
    return {"roots_per_minute": 60 * roots / sum(seconds.values()), "times_cheaper": by_action / labelled}


def total(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All units as one row."""
    seconds = {name: sum(row["seconds"][name] for row in rows) for name in rows[0]["seconds"]}
    roots, by_action = (sum(row[name] for row in rows) for name in ("roots", "by_action_seconds"))
    own = {"unit": "all", "temperature": None, "top_p": None, "roots": roots, "seconds": seconds}
    return rows[0] | own | {"by_action_seconds": by_action} | rates(roots, seconds, by_action)


def spread(space: ActionSpace, count: int) -> list[Expansion]:
    """The middle drafted actions of `count` equal groups of growing trees: their mean stands for that of the space."""
    ordered = sorted(space.drafted, key=lambda expansion: expansion.num_drafted)
    count = min(count, len(ordered))
    return [ordered[(2 * group + 1) * len(ordered) // (2 * count)] for group in range(count)]


def by_action_seconds(
    target: LanguageModel,
    draft: LanguageModel,
    tokens: list[int],
    unit: WorkUnit,
    config: Config,
    expansions: Sequence[Expansion],
) -> float:
    """Mean seconds to label one root for one of `expansions` and all verifiers from `num_samples` trees of its own."""
    verifiers = [get_verifier(name) for name in config.generate.verifiers]
    generator = torch.Generator(draft.device).manual_seed(unit.seed("bench"))
    for model in (target, draft):
        prefill(model, tokens[:-1])
    start = time.perf_counter()
    for expansion in expansions:
        for _ in range(config.generate.num_samples):
            root = start_root(draft, tokens[-1:], unit.draft_sampling)
            tree = draft_tree(draft, root, expansion, unit.draft_sampling, generator)
            target_probs = score_tree(target, tree, unit.sampling).target_probs
            for verifier in verifiers:
                float(verifier.expected_tokens(tree, target_probs))
            draft.keep([])
            target.keep([])
    return (time.perf_counter() - start) / len(expansions)


def bench_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Rates, and the comparison."""
    table = Table(title="Labels of all actions from one drawing", title_justify="left")
    for heading in ("unit", "T, top-p", "roots", "a minute", "s a root by action", "times cheaper"):
        table.add_column(heading, justify="left" if heading == "unit" else "right")
    for row in rows:
        setting = "" if row["temperature"] is None else f"{row['temperature']}, {row['top_p']}"
        table.add_row(
            row["unit"], setting, str(row["roots"]), f"{row['roots_per_minute']:.1f}",
            f"{row['by_action_seconds'] / row['roots']:.1f}", f"{row['times_cheaper']:.1f}",
        )  # fmt: skip
    return table


def shares_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Where the time of each unit goes."""
    names = list(rows[0]["seconds"])
    table = Table(title="Shares of the time", title_justify="left")
    for heading in ("unit", *names):
        table.add_column(heading, justify="left" if heading == "unit" else "right")
    for row in rows:
        whole = sum(row["seconds"].values())
        table.add_row(row["unit"], *(f"{row['seconds'][name] / whole:.0%}" for name in names))
    return table
