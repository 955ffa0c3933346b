"""The README.md beside a data set: what it holds, how it was made, how to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import DatasetCard, DatasetCardData

from data_gen.work_units import WorkUnit
from selector.artifacts.writing import write_text
from selector.dataset.manifest import Manifest
from selector.pair_names import licence_keys, shared_licence


@dataclass(frozen=True)
class Contents:
    """What the manifest does not say: roots by task and by setting; lines that name prompts and failures."""

    tasks: Counter[str]
    settings: Counter[str]
    prompts: list[str]
    failed: list[str]


def contents(manifest: Manifest, units: list[WorkUnit]) -> Contents:
    """Of a run whose units are known."""
    tasks, settings, failed = Counter[str](), Counter[str](), []
    for unit, state in zip(units, manifest.units, strict=True):
        setting = setting_name(unit.sampling.temperature, unit.sampling.top_p)
        tasks[unit.prompt.task] += state.rows
        settings[setting] += state.rows
        if state.status == "failed":
            failed.append(f"- `{unit.prompt.id}` ({setting}): {' '.join(state.error.split())}")
    sources = sorted({(unit.prompt.source, unit.prompt.licence) for unit in units})
    prompts = [f"- {source or 'unnamed source'}: {licence or 'licence not stated'}" for source, licence in sources]
    return Contents(tasks, settings, prompts, failed)


def setting_name(temperature: float, top_p: float) -> str:
    """As the card calls a sampling setting, also one that has been through float32."""
    return f"temperature {temperature:.6g}, top-p {top_p:.6g}"


def write_data_card(manifest: Manifest, content: Contents, folder: Path) -> None:
    """Write `README.md` by way of a temporary file."""
    write_text(folder / "README.md", data_card(manifest, content))


def card_section(card: str, title: str) -> list[str]:
    """The list below a heading of a card."""
    _, _, rest = card.partition(f"\n## {title}\n")
    return [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("- ")]


def data_card(manifest: Manifest, content: Contents) -> str:
    """The card: metadata for the hub, and a text."""
    of_prompts = (line.rpartition(": ")[2] for line in content.prompts)
    data = DatasetCardData(
        pretty_name="Roots of speculative decoding",
        tags=["speculative-decoding", "draft-tree-selector"],
        configs=[{"config_name": "default", "data_files": "shards/*.parquet"}],
        base_model=manifest.models.base_model or None,
        **licence_keys(shared_licence(manifest.models.licence, *of_prompts)),
    )
    return str(DatasetCard(f"---\n{data.to_yaml()}\n---\n\n{_text(manifest, content)}"))


def _text(manifest: Manifest, content: Contents) -> str:
    """Markdown."""
    generate = manifest.config["generate"]
    done = sum(unit.status == "done" for unit in manifest.units)
    limits = manifest.space.limits
    return "\n".join(
        [
            "# Roots of speculative decoding: features and expected block efficiencies",
            "",
            f"{sum(content.tasks.values())} roots of {done} trajectories, made by `ddte generate`.",
            "",
            f"- target: {manifest.models.target.describe(manifest.target_fingerprint)}",
            f"- draft: {manifest.models.draft.describe(manifest.draft_fingerprint)}",
            f"- type of weights: {manifest.models.weights or manifest.dtype}",
            f"- actions: all {len(manifest.space)} expansions up to (K, L1, L2) = {limits}",
            f"- verifiers: {', '.join(manifest.verifiers)}",
            f"- a root every {generate['root_every']} of at most {generate['max_new_tokens']} sampled tokens, "
            f"{generate['num_samples']} super-trees a root; draft warp: {manifest.draft_warp}; seed {manifest.seed}",
            f"- versions: {', '.join(f'{name} {version}' for name, version in manifest.versions.items())}; "
            f"revision {manifest.git_revision or 'unknown'}",
            "",
            *_table("task", content.tasks.items()),
            *_table("setting", content.settings.items()),
            "## A row",
            "",
            "| column | content |",
            "| --- | --- |",
            "| `prompt_id`, `task`, `prompt_index` | where the trajectory starts |",
            "| `position`, `context_length` | tokens generated before the root; context tokens before the root token |",
            "| `temperature`, `top_p`, `top_k` | the target's sampling setting |",
            "| `draft_temperature`, `draft_top_p` | the draft's |",
            "| `target_hidden`, `draft_hidden_prev`, `draft_hidden_root` | float16 hidden states: both models' at the "
            "token before the root token, and the draft's at the root token |",
            f"| `scalars` | {', '.join(manifest.scalars)} |",
            "| `efficiency_<verifier>` | float16: expected tokens of a decoding step for each action: means over the "
            "first and the second half of the super-trees, row-major `[2, actions]` |",
            "| `standard_error_<verifier>` | float16: of the mean over all super-trees, `[actions]` |",
            "",
            "The order of the actions is that of `ActionSpace(*action_space).expansions`. No text is stored.",
            "",
            "```python",
            "from selector.dataset.dataset import RootDataset",
            "",
            'roots = RootDataset.load("this folder")',
            "```",
            "",
            "`ddte generate --check FOLDER` validates it.",
            "",
            "## The manifest",
            "",
            "`manifest.json` says what was run (`config`, `versions`, `git_revision`, `seed`), with which models "
            "(`models`, `target_fingerprint`, `draft_fingerprint`, `dtype`, `hidden_sizes`), what the columns hold "
            "(`action_space`, `verifiers`, `scalars`, `draft_warp`) and what became of each unit: `id` (hash of its "
            "prompt, settings and seed), `status`, `shard` in `shards/`, `rows`, `seconds`, `checksum` (SHA-256 of the "
            "shard), and `error` for a failure.",
            "",
            "## Prompts",
            "",
            *content.prompts,
            "",
            "## Failed trajectories",
            "",
            *(content.failed or ["None."]),
            "",
        ]
    )


def _table(name: str, counts: Iterable[tuple[str, int]]) -> list[str]:
    return [f"| {name} | roots |", "| --- | --- |", *(f"| {key} | {count} |" for key, count in counts), ""]
