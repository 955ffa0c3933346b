"""`ddte bench`: what is measured, and how fast or how well it went."""

from __future__ import annotations

from pathlib import Path

from selector.cli.parser import Verb
from selector.config import Config, EvaluateConfig
from selector.errors import UserError

TREES = ("(4, 0, 4)", "(4, 1, 3)", "(4, 2, 4)", "(4, 4, 4)")  # of the tables of `bench efficiency`


def decode(
    config: Config,
    checkpoint: Path | list[Path] | None = None,
    static: list[str] | None = None,
    verifier: str = "traversal",
    profile: Path | None = None,
    prompts: list[str] | None = None,
    prompts_per_task: int = 2,
    settings: list[tuple[float, float]] | None = None,
    steps: int = 1000,
    until_width: float | None = None,
    texts: int = 10,
    assisted: bool = True,
    prompt_lookup: bool = True,
    require_speedup: float | None = None,
    json: Path | None = None,
) -> int:
    """Throughput of selectors and static trees, which take turns at every step by a coin, beside `generate`.

    The exit code is 1 when nothing could be compared, and when the speed-up that is required is not met.

    Args:
        checkpoint: a selector's checkpoint folder, or user/name of the hub, or a list of them, measured beside their
            best static trees (default, where no static tree is given either: those that lie beside the configured
            draft).
        static: what to measure without a selector, each a tree (K, L1, L2), a copy, or a rule, as decode.policy takes.
        verifier: verifier of these.
        profile: this machine's pass times (default: measured once, and kept in the user's cache).
        prompts: `builtin`, `copying`, JSONL files or hub sets (default: `builtin`).
        prompts_per_task: prompts of each task; 0 takes all.
        settings: (temperature, top-p) pairs (default: those of --decode).
        steps: steps of each decoder, of those that copy three times as many; they take turns in the same texts.
        until_width: stop earlier, once the widest interval of a ratio is as narrow as this.
        texts: texts that plain, assisted and prompt-lookup generation write in between.
        assisted: measure transformers' assisted generation as well.
        prompt_lookup: measure transformers' prompt lookup as well.
        require_speedup: exit with 1 when the best decoder is slower than so many times plain.
        json: write the rows here as well.
    """
    from selector.bench.decode import bench_decode

    folders = checkpoint if isinstance(checkpoint, list) else [checkpoint] if checkpoint else []
    return bench_decode(
        config, checkpoint=folders, static=static or [], verifier=verifier, profile=profile,
        prompts=prompts or ["builtin"], prompts_per_task=prompts_per_task, settings=settings or [], steps=steps,
        until_width=until_width, texts=texts, assisted=assisted, prompt_lookup=prompt_lookup,
        require_speedup=require_speedup, json=json,
    )  # fmt: skip


def step(
    config: Config,
    static: str = "(2, 0, 2)",
    verifier: str = "rbv",
    prompts: list[str] | None = None,
    prompts_per_task: int = 2,
    json: Path | None = None,
) -> None:
    """Where a decoding step's time goes, with passes as transformers runs them and as ddte does.

    Args:
        static: the tree of every step, (K, L1, L2).
        verifier: its verifier.
        prompts: `builtin`, `copying`, JSONL files or hub sets (default: `builtin`).
        prompts_per_task: prompts of each task; 0 takes all.
        json: write the rows here as well.
    """
    from selector.bench.step_time import bench_step

    bench_step(config, static, verifier, prompts or ["builtin"], prompts_per_task, json)


def generate(config: Config, units: int = 4, json: Path | None = None) -> None:
    """Roots a minute, where the time goes, and the cost of the same labels by one drawing an action.

    Args:
        units: trajectories to label, the first of the plan.
        json: write the rows here as well.
    """
    from selector.bench.generation import bench_generate

    bench_generate(config, units, json)


def verification(
    nodes: tuple[int, ...] = (8, 16, 33, 65),
    vocabularies: tuple[int, ...] = (32_000, 49_152, 152_064, 262_144),
    verifiers: list[str] | None = None,
    seconds: float = 8.0,
    json: Path | None = None,
) -> None:
    """Time of a step's verification beside one read of its distributions.

    Args:
        nodes: sizes of the tree.
        vocabularies: sizes of the vocabulary, in tokens.
        verifiers: names (default: all).
        seconds: time for each pair of sizes.
        json: write the rows here as well.
    """
    from selector.bench.verification import bench_verification

    bench_verification(nodes, vocabularies, verifiers, seconds, json)


def efficiency(
    data: Path, evaluate: EvaluateConfig, actions: list[str] | None = None, json: Path | None = None
) -> None:
    """Tokens a step of every verifier on a data set's distributions, as markdown.

    Args:
        data: a data set made by `ddte generate`.
        actions: trees to compare verifiers at, each (K, L1, L2) (default: up to four, as far as they are labelled).
        json: write the rows here as well.
    """
    from selector.artifacts.claims import check_file
    from selector.artifacts.writing import write_json
    from selector.bench.block_efficiency import markdown, mean_efficiencies
    from selector.dataset.dataset import RootDataset
    from selector.trees.expansion import Expansion

    if actions == []:
        raise UserError("actions is empty: give trees, each (K, L1, L2).")
    chosen = [Expansion.parse(text) for text in actions or TREES]
    if json:
        check_file("json", json)
    dataset = RootDataset.load(data)
    labelled = dataset.manifest.space.drafted
    if actions is None:
        chosen = [tree for tree in chosen if tree in labelled] or [labelled[-1]]
    means = mean_efficiencies(dataset, chosen, evaluate)
    print(markdown(means, dataset, evaluate))
    if json:
        write_json(json, [mean.to_dict() for mean in means])


BENCHES = {
    "decode": Verb(decode, ("pair", "decode")),
    "step": Verb(step, ("pair", "decode")),
    "generate": Verb(generate, ("pair", "action_space", "generate")),
    "verification": Verb(verification),
    "efficiency": Verb(efficiency, ("evaluate",)),
}
