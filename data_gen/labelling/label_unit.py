"""One work unit: a trajectory, and features and labels at its roots, which share its rows in both caches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from data_gen.labelling.below import draw_below, inner_below
from data_gen.labelling.copied_chain import CopiedChain
from data_gen.labelling.copies import with_copies
from data_gen.labelling.draft_forest import draw_forest, inner_nodes
from data_gen.labelling.forest import Forest, by_root
from data_gen.labelling.scoring import Scorer
from data_gen.labelling.trajectory import TextRoot, Trajectory
from data_gen.work_units import WorkUnit
from selector.config import GenerateConfig
from selector.dataset.records import RootRecord
from selector.decoding.stats import Stopwatch
from selector.engine.drafting import DraftRoot, start_roots
from selector.engine.language_model import LanguageModel
from selector.engine.reading_draft import read, reads_target
from selector.engine.text_index import TextIndex
from selector.features import Match, Previous, RootFeatures, read_target
from selector.trees.efficiency import label_drawing
from selector.trees.expansion import ActionSpace

# Both models' distributions of so many rows are held at once, 49,152 to 262,144 numbers each. More rows make fewer
# draft passes, and every row's attention reads the others' masked keys: on a CPU 256 to 4,096 differ little.
CHUNK_ROWS = 1024
SECTIONS = ("trajectory", "draft", "target", "features", "labels")


def label_unit(
    target: LanguageModel,
    draft: LanguageModel,
    prompt_tokens: Sequence[int],
    unit: WorkUnit,
    config: GenerateConfig,
    space: ActionSpace,
    end_tokens: Collection[int],
    stopwatch: Stopwatch | None = None,
) -> list[RootRecord]:
    """Records of the roots at 0, `root_every`, 2 `root_every`, .. generated tokens, until the text ends.

    Chunks of roots are drafted, scored and labelled together, each forest below its own root's row; then the text
    so far is committed and nothing else. `stopwatch` counts the time of `SECTIONS`.
    """
    stopwatch = stopwatch or Stopwatch(defaultdict(float))
    generator = torch.Generator(target.device).manual_seed(unit.seed("trajectory"))
    with stopwatch.section("trajectory"):
        trajectory = Trajectory(target, prompt_tokens, unit.sampling, generator, end_tokens, reads_target(draft))
    with stopwatch.section("draft"):
        draft.reset()
        text = torch.tensor(prompt_tokens[:-2], device=draft.device)  # the first root's features need the last two
        if len(text):
            read(draft, trajectory.states, 0, len(text))
            draft.extend(text, range(-1, len(text) - 1), last_rows=1)
            draft.keep(range(len(text)))
    records: list[RootRecord] = []
    index = TextIndex(prompt_tokens)
    count = chunk_size(config.num_samples * (inner_nodes(space.limits) + inner_below(space)) + config.root_every)
    while True:
        with stopwatch.section("trajectory"):
            roots = trajectory.sample_roots(count, config.root_every, config.max_new_tokens)
        if not roots:
            return records
        copies = [find_copy(index, trajectory.tokens, root.index + 1, space) for root in roots]
        copied = [tokens for _, tokens in copies]
        with stopwatch.section("draft"):
            known = draft.length
            new, rows = trajectory.tokens[known : roots[-1].index + 1], [root.index - known for root in roots]
            read(draft, trajectory.states, known, len(new))
            starts = start_roots(draft, new, rows, unit.draft_sampling)
            seeds = [unit.seed(f"trees at {root.position}") for root in roots]
            how = config.num_samples, unit.draft_sampling, seeds
            forest = draw_forest(draft, starts, space.limits, *how)
            below = draw_below(draft, starts, copied, starts[-1].row + 1 + forest.drafted_rows, space, *how)
            draft.keep(range(starts[-1].row))  # without the last root token, which the next root's features need
        with stopwatch.section("target"):
            scorer = Scorer(trajectory)
            target_probs = scorer.forest(forest, scorer.rows_of(roots), [root.probs for root in roots])
            chains = scorer.chains(roots, copied)
            below_probs = below.score(scorer, chains) if below else target_probs
            trajectory.commit()
        with stopwatch.section("features"):
            features = [
                _features(trajectory, draft, root, start, match)
                for root, start, (match, _) in zip(roots, starts, copies, strict=True)
            ]
        with stopwatch.section("labels"):
            samples = label_forest(forest, target_probs, space, config.verifiers, chains)
            if below:
                below.add_labels(samples, below_probs, chains, space)
        for place, root in enumerate(roots):
            own = slice(place * config.num_samples, (place + 1) * config.num_samples)
            labels = {name: values[own] for name, values in samples.items()}
            records.append(_record(unit, root, features[place], labels))
        rows_drawn = len(forest.draft_probs) + (len(below.forest.draft_probs) if below else 0)
        count = chunk_size(rows_drawn // len(roots) + config.root_every, count)


def chunk_size(rows: int, before: int | None = None) -> int:
    """How many roots of `rows` rows make a chunk; at most four times as many as `before`, whose rows were counted."""
    count = max(1, CHUNK_ROWS // rows)
    return count if before is None else min(count, 4 * before)


def find_copy(
    index: TextIndex, text: Sequence[int], length: int, space: ActionSpace
) -> tuple[Match | None, tuple[int, ...]]:
    """What could be copied after the first `length` tokens of `text`: the match, and tokens for the longest copy."""
    index.append(text[len(index) : length])
    match = index.match()
    return match, tuple(index.copy(max(space.copied))) if match and space.copied else ()


def label_forest(
    forest: Forest,
    target_probs: Tensor,
    space: ActionSpace,
    verifiers: Sequence[str],
    chains: Sequence[CopiedChain | None] = (),
) -> dict[str, Tensor]:
    """Per verifier `[super-trees, actions]`, float64: each super-tree's estimate of `E[tau + 1]`.

    `chains`: what could be copied at each root; needed where the space has copies.
    """
    labels: dict[str, list[Tensor]] = {name: [] for name in verifiers}
    depth = max((tree.max_depth for tree in space.beside), default=0)
    for drawing in by_root(forest.drawings(target_probs, chains, depth)):
        chain = chains[drawing.trunk[0]] if space.copies else None
        for name, values in label_drawing(drawing, space, verifiers).items():
            labels[name].append(with_copies(values, drawing, chain, space, name) if space.copies else values)
    return {name: torch.stack(values) for name, values in labels.items()}


def _features(
    trajectory: Trajectory, draft: LanguageModel, root: TextRoot, start: DraftRoot, match: Match | None
) -> RootFeatures:
    previous = None
    if root.prev_probs is not None and root.prev_hidden is not None:
        previous = Previous(
            target=read_target(root.prev_probs, draft.support),
            draft_probs=start.probs[0],
            target_hidden=root.prev_hidden,
            draft_hidden=start.hidden[0],
        )
    return start.features(previous, trajectory.target.hidden_size, root.index, trajectory.sampling, match)


def _record(unit: WorkUnit, root: TextRoot, features: RootFeatures, samples: dict[str, Tensor]) -> RootRecord:
    """Means over both halves of the samples, and the standard error of the mean over all of them."""
    return RootRecord(
        prompt_id=unit.prompt.id,
        task=unit.prompt.task,
        prompt_index=unit.prompt_index,
        position=root.position,
        context_length=root.index,
        temperature=unit.sampling.temperature,
        top_p=unit.sampling.top_p,
        top_k=unit.sampling.top_k,
        draft_temperature=unit.draft_sampling.temperature,
        draft_top_p=unit.draft_sampling.top_p,
        **vars(features),
        efficiency={name: torch.stack([half.mean(0) for half in values.chunk(2)]) for name, values in samples.items()},
        standard_error={name: values.std(0) / len(values) ** 0.5 for name, values in samples.items()},
    )
