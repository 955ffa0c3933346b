"""`ddte distill`: sample text from the target, fit an early-exit draft to it, measure it, write its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from data_gen.distillation.acceptance import acceptance_per_prompt, with_interval
from data_gen.distillation.sampling import sample_shards
from data_gen.distillation.settings import check_start, check_target
from data_gen.distillation.shards import frequent_tokens
from data_gen.distillation.training import DEPTHS, TEMPERATURES, DraftTraining
from data_gen.prompts.prompts import load_prompts
from selector.artifacts.claims import claim_folder, refuse_other_run, sole_writer
from selector.artifacts.loading import read_json
from selector.artifacts.writing import as_json, atomic_write, write_json, write_text
from selector.config import Config
from selector.distributions import Sampling
from selector.engine.early_exit import build_early_exit, load_draft, save_draft, start_from
from selector.engine.huggingface import load_target
from selector.engine.naming import target_name
from selector.pair_names import ModelName, licence_keys
from selector.shipped import find

READS = {"tokens": "", "target": ", which reads the target's last hidden state before each token beside the token"}
console = Console()


def distill(config: Config, folder: Path, work: Path) -> None:
    """Make the draft folder; `work` keeps the sampled text and the training state, so that a rerun goes on."""
    load_prompts(config.generate.prompts, config.generate.prompts_per_task)
    with sole_writer("out", folder), sole_writer("work", work):
        claim_folder("out", folder)
        _distill(config, folder, work)


def _distill(config: Config, folder: Path, work: Path) -> None:
    settings = config.distill
    target, tokenizer = load_target(config.pair)
    vocab_size = target.config.vocab_size
    check_target(settings, target.config.num_hidden_layers, vocab_size)
    start = None if settings.start is None else find(settings.start)
    if start is not None:  # tried before hours of sampling
        check_start(start)
        start_from(build_early_exit(target, settings.layers, None, settings.reads), start, target)
    _claim(work, config)
    held_out_shards, training_shards = hold_out(_sample(target, tokenizer, config, work), settings.holdout_tokens)
    head_tokens = frequent_tokens(training_shards, vocab_size, settings.head_tokens or vocab_size)
    draft = build_early_exit(target.float(), settings.layers, head_tokens, settings.reads)  # type: ignore[no-untyped-call]
    if start is not None:
        start_from(draft, start, target)
    training = DraftTraining(draft, head_tokens, training_shards, settings, held_out_shards)
    with _progress("Training") as progress:
        task = progress.add_task("training", total=training.total_shards, completed=training.done_shards)
        training.run(work / "training.pt", lambda row: _log(work, row, progress, task, training))
    name = target_name(config.pair, target)
    info = {"head_tokens": len(head_tokens), "target": name.name, "revision": name.revision}
    info["distill"] = as_json(settings)
    with atomic_write(folder) as temporary:  # measuring takes minutes: a draft without its card is none
        save_draft(draft, temporary, layers=settings.layers, head_tokens=head_tokens, info=info)
        write_card(temporary, config, name, training.acceptance(held_out_shards))


def hold_out(shards: list[tuple[Path, int]], tokens: int) -> tuple[list[Path], list[Path]]:
    """`(held out, for training)` from `(shard, its sampled tokens)`: the first shards, until they have `tokens`.

    One shard at least is left for training.
    """
    count = 0
    while count < len(shards) - 1 and sum(size for _, size in shards[:count]) < tokens:
        count += 1
    paths = [path for path, _ in shards]
    return paths[:count], paths[count:]


def _claim(work: Path, config: Config) -> None:
    """A work folder belongs to one configuration; it is made if need be."""
    mine = {"pair": config.pair, "distill": config.distill}
    if not claim_folder("work", work, "distill.json"):
        write_json(work / "distill.json", {section: as_json(settings) for section, settings in mine.items()})
    stored = read_json(work / "distill.json", "give another folder")
    for section, settings in mine.items():
        refuse_other_run("work", work, stored.get(section, {}), settings, f"{section}.")


def _sample(
    target: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: Config, work: Path
) -> list[tuple[Path, int]]:
    """The shards with how many tokens each has."""
    settings = config.distill
    budget = settings.token_budget + settings.holdout_tokens
    size = budget * (settings.top_tokens * 6 + target.config.hidden_size * 2) / 1e6
    console.print(f"Sampling {budget:,} tokens from the target: about {size:,.0f} MB in {work}.")
    shards = []
    with _progress("Sampling") as progress:
        task = progress.add_task("tokens", total=budget)
        for path, count in sample_shards(
            target, tokenizer, work, token_budget=budget, batch_size=settings.sampling_batch,
            new_tokens=settings.new_tokens, top_tokens=settings.top_tokens, settings=settings.settings,
            seed=settings.seed,
        ):  # fmt: skip
            shards.append((path, count))
            progress.advance(task, count)
    return shards


def _log(work: Path, row: dict[str, Any], progress: Progress, task: Any, training: DraftTraining) -> None:
    """One line of `training.jsonl`; what is measured after an epoch is printed, too."""
    with (work / "training.jsonl").open("a") as log:
        log.write(json.dumps(row) + "\n")
    description = f"epoch {row['epoch']:.0f}, loss {row['loss']:.3f}"
    progress.update(task, completed=training.done_shards, description=description)
    if row.get("acceptance"):
        console.print(f"After epoch {row['epoch']}, {held_out_sentence(row['acceptance'])}")


def _progress(title: str) -> Progress:
    text = TextColumn(f"{title}: {{task.description}}")
    return Progress(
        text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), console=console
    )


def measure_draft(folder: Path, config: Config) -> list[dict[str, Any]]:
    """Acceptance rate by depth, temperature and task on the prompts of the configuration, with intervals over them."""
    target, tokenizer = load_target(config.pair)
    draft, head_tokens = load_draft(folder, target)
    prompts = load_prompts(config.generate.prompts, config.generate.prompts_per_task)
    rows = []
    for temperature in TEMPERATURES:
        for task in sorted({prompt.task for prompt in prompts}):
            texts = [prompt.messages[-1]["content"] for prompt in prompts if prompt.task == task]
            sampling = Sampling(temperature)
            rates = acceptance_per_prompt(target, draft, tokenizer, head_tokens, texts, sampling, depths=DEPTHS)
            for depth, values in enumerate(zip(*rates, strict=True), 1):
                rate, half = with_interval(list(values))
                row = {"temperature": temperature, "task": task, "depth": depth, "acceptance": rate}
                rows.append(row | {"half_width": half, "prompts": len(values)})
    return rows


def write_card(folder: Path, config: Config, target: ModelName, held_out: Sequence[dict[str, Any]] = ()) -> None:
    """Measure the draft and write `acceptance.json` and the model card `README.md` into its folder.

    `held_out`: rows of `DraftTraining.acceptance` on the sampled text that was kept from training.
    """
    rows = measure_draft(folder, config)
    write_json(folder / "acceptance.json", rows)
    table = Table("temperature", "task", "depth", "acceptance rate", "prompts")
    lines = ["| temperature | task | depth | acceptance rate | prompts |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        rate = f"{row['acceptance']:.3f} ± {row['half_width']:.3f}"
        cells = (str(row["temperature"]), row["task"], str(row["depth"]), rate, str(row["prompts"]))
        table.add_row(*cells)
        lines.append(f"| {' | '.join(cells)} |")
    console.print(table)
    sentence = f"\n\nIn training, {held_out_sentence(held_out)}" if held_out else ""
    write_text(folder / "README.md", _card(config, target, "\n".join(lines) + sentence))


def held_out_sentence(rows: Sequence[dict[str, Any]]) -> str:
    """The acceptance rates by depth and temperature over all tasks."""
    figures = []
    for depth, temperature in sorted({(row["depth"], row["temperature"]) for row in rows}):
        own = [row for row in rows if (row["depth"], row["temperature"]) == (depth, temperature)]
        rate = sum(row["acceptance"] * row["tokens"] for row in own) / sum(row["tokens"] for row in own)
        figures.append(f"{rate:.3f} at depth {depth} and temperature {temperature}")
    return f"acceptance rate on held-out sampled text: {', '.join(figures)}."


def _card(config: Config, target: ModelName, table: str) -> str:
    """The card of a draft that is made of the target's layers, and so has its licence."""
    settings = config.distill
    tags = ["speculative-decoding"]
    data = ModelCardData(
        base_model=list(target.hub_ids) or None, library_name="ddte", tags=tags, **licence_keys(target.licence)
    )
    text = f"""# Early-exit draft of {target.title}

A draft of layers {settings.layers} of the target{READS[settings.reads]}.
It is fitted to the target's next-token laws on {settings.token_budget:,} tokens that the target sampled itself.
Embedding and head are the target's own; the head is reduced to {settings.head_tokens or "all"} tokens.

Mean acceptance rate `sum min(target, draft)` over sampled answers, both laws at the same temperature, with
95% intervals over prompts; at depth `k` the draft has drafted the `k - 1` tokens before:

{table}
"""
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}"))
