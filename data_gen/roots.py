"""One work unit: a trajectory, and features and labels at its roots."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from data_gen.supertree import Forest, draw_forest
from data_gen.trajectories import Trajectory
from data_gen.units import WorkUnit
from selector.config import GenerateConfig
from selector.distributions import Sampling, warp
from selector.engine.drafting import Root, dense_laws, start_root
from selector.engine.language_model import LanguageModel, Scores
from selector.features import Previous, RootFeatures, root_features
from selector.records import RootRecord
from selector.trees.efficiency import label
from selector.trees.expansion import ActionSpace

SCORE_ROWS = 256


def label_unit(
    target: LanguageModel,
    draft: LanguageModel,
    prompt_tokens: Sequence[int],
    unit: WorkUnit,
    config: GenerateConfig,
    space: ActionSpace,
    end_tokens: Collection[int],
) -> list[RootRecord]:
    """Records of the roots at 0, `root_every`, 2 `root_every`, .. generated tokens, until the text ends.

    The target's cache stands before the root token all along; drafted rows never stay in a cache.
    """
    text_generator, tree_generator = (
        torch.Generator(model.device).manual_seed(unit.seed(purpose))
        for model, purpose in ((target, "trajectory"), (draft, "trees"))
    )
    trajectory = Trajectory(target, prompt_tokens, unit.sampling, text_generator, end_tokens)
    draft.reset()
    records = []
    while trajectory.position < config.max_new_tokens and not trajectory.ended:
        if trajectory.position % config.root_every:
            trajectory.step()
            continue
        root = start_root(draft, trajectory.tokens[draft.length :], unit.draft_sampling)
        features = _features(trajectory, draft, root)
        forest = draw_forest(draft, root, space.limits, config.num_samples, unit.draft_sampling, tree_generator)
        draft.keep(range(root.row))  # the context without the root token, which is then part of the next pass
        target_laws, scores = score_forest(target, forest, unit.sampling)
        samples = label_forest(forest, target_laws, space, config.verifiers)
        records.append(_record(unit, trajectory, features, samples))
        trajectory.take(scores)
    return records


def score_forest(target: LanguageModel, forest: Forest, sampling: Sampling) -> tuple[Tensor, Scores]:
    """The target's warped laws `[inner nodes, vocab]`, and its scores of the root token alone.

    Inner node number `i` becomes pending row `i`. Passes are cut at `SCORE_ROWS` rows, which bounds what warping needs.
    """
    inner = forest.inner
    tokens = torch.tensor([forest.tokens[node] for node in inner], device=target.device)
    parents = [-1, *(forest.law_rows[forest.topology.parents[node]] for node in inner[1:])]
    laws: list[Tensor] = []
    root: Scores | None = None
    for start in range(0, len(inner), SCORE_ROWS):
        rows = slice(start, start + SCORE_ROWS)
        scores = target.extend(tokens[rows], parents[rows])
        laws.append(warp(scores.logits, sampling))
        root = root or Scores(scores.logits[:1], scores.hidden[:1])
    assert root is not None
    return torch.cat(laws), root


def label_forest(
    forest: Forest, target_laws: Tensor, space: ActionSpace, verifiers: Sequence[str]
) -> dict[str, Tensor]:
    """Per verifier `[samples, actions]`, float64: each super-tree's estimate of `E[tau + 1]`."""
    labels: dict[str, list[Tensor]] = {name: [] for name in verifiers}
    for sample in range(len(forest.trunks)):
        tree, nodes = forest.super_tree(sample)
        for name, values in label(tree, forest.rows_of(target_laws, nodes), space, verifiers).items():
            labels[name].append(values.double().cpu())
    return {name: torch.stack(values) for name, values in labels.items()}


def _features(trajectory: Trajectory, draft: LanguageModel, root: Root) -> RootFeatures:
    previous = None
    if trajectory.prev_probs is not None and trajectory.prev_hidden is not None:
        previous = Previous(
            target_probs=trajectory.prev_probs,
            draft_probs=dense_laws(draft, root.laws[:1])[0],
            target_hidden=trajectory.prev_hidden,
            draft_hidden=root.hidden[0],
        )
    return root_features(
        previous,
        draft_probs_root=root.laws[-1],
        draft_hidden_root=root.hidden[-1],
        target_hidden_size=trajectory.target.hidden_size,
        context_length=len(trajectory.tokens) - 1,
        sampling=trajectory.sampling,
    )


def _record(unit: WorkUnit, trajectory: Trajectory, features: RootFeatures, samples: dict[str, Tensor]) -> RootRecord:
    """Means over both halves of the samples, and the standard error of the mean over all of them."""
    return RootRecord(
        prompt_id=unit.prompt.id,
        task=unit.prompt.task,
        prompt_index=unit.prompt_index,
        position=trajectory.position,
        context_length=len(trajectory.tokens) - 1,
        temperature=unit.sampling.temperature,
        top_p=unit.sampling.top_p,
        top_k=unit.sampling.top_k,
        draft_temperature=unit.draft_sampling.temperature,
        draft_top_p=unit.draft_sampling.top_p,
        target_hidden=features.target_hidden,
        draft_hidden_prev=features.draft_hidden_prev,
        draft_hidden_root=features.draft_hidden_root,
        scalars=features.scalars,
        efficiency={name: torch.stack([half.mean(0) for half in values.chunk(2)]) for name, values in samples.items()},
        standard_error={name: values.std(0) / len(values) ** 0.5 for name, values in samples.items()},
    )
