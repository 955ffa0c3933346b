"""The README.md beside a data set: what it holds, how it was made, how to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from data_gen.units import WorkUnit
from selector.manifest import Manifest
from selector.provenance import write_text


def write_data_card(manifest: Manifest, units: list[WorkUnit], folder: Path) -> None:
    """Write `README.md` by way of a temporary file."""
    write_text(folder / "README.md", data_card(manifest, units))


def data_card(manifest: Manifest, units: list[WorkUnit]) -> str:
    """Markdown text."""
    pair, generate = manifest.config["pair"], manifest.config["generate"]
    tasks: Counter[str] = Counter()
    settings: Counter[str] = Counter()
    for unit, state in zip(units, manifest.units, strict=True):
        tasks[unit.prompt.task] += state.rows
        settings[f"temperature {unit.sampling.temperature}, top-p {unit.sampling.top_p}"] += state.rows
    failed = [
        f"- `{unit.prompt.id}` (temperature {unit.sampling.temperature}, top-p {unit.sampling.top_p}): {state.error}"
        for unit, state in zip(units, manifest.units, strict=True)
        if state.status == "failed"
    ]
    sources = sorted({(unit.prompt.source, unit.prompt.licence) for unit in units})
    limits = manifest.space.limits
    return "\n".join(
        [
            "# Roots of speculative decoding: features and expected block efficiencies",
            "",
            f"{sum(tasks.values())} roots of {len(units) - len(failed)} trajectories, made by `ddte generate`.",
            "",
            f"- target `{pair['target']}` ({manifest.target_fingerprint}), draft `{pair['draft']}` "
            f"({manifest.draft_fingerprint}), {manifest.dtype}",
            f"- actions: all {len(manifest.space)} expansions up to (K, L1, L2) = {limits}",
            f"- verifiers: {', '.join(manifest.verifiers)}",
            f"- a root every {generate['root_every']} of at most {generate['max_new_tokens']} sampled tokens, "
            f"{generate['num_samples']} super-trees a root; draft warp: {manifest.draft_warp}; seed {manifest.seed}",
            f"- versions: {', '.join(f'{name} {version}' for name, version in manifest.versions.items())}; "
            f"revision {manifest.git_revision or 'unknown'}",
            "",
            *_table("task", tasks.items()),
            *_table("setting", settings.items()),
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
            "from selector.records import RootDataset",
            "",
            'roots = RootDataset.load("this folder")',
            "```",
            "",
            "## Prompts",
            "",
            *(f"- {source or 'unnamed source'}: {licence or 'licence not stated'}" for source, licence in sources),
            "",
            "## Failed trajectories",
            "",
            *(failed or ["None."]),
            "",
        ]
    )


def _table(name: str, counts: Iterable[tuple[str, int]]) -> list[str]:
    return [f"| {name} | roots |", "| --- | --- |", *(f"| {key} | {count} |" for key, count in counts), ""]
