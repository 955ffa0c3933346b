"""Arms of a decoding bench that take single steps: selectors, static trees, and no drafting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selector.artifacts.loading import read_json
from selector.bench.coin import StepArm
from selector.decoding.checks import check_action
from selector.decoding.policies import FixedPolicy, MatchRule, SelectorPolicy, fixed_policy
from selector.errors import UserError
from selector.latency import LatencyProfile
from selector.network.checkpoint import SelectorCheckpoint
from selector.network.checkpoint_config import REMEDY
from selector.shipped import find
from selector.trees.expansion import CopyExpansion, Expansion
from selector.trees.verifiers import get_verifier

NO_DRAFTING = "no drafting"
COPYING = 3  # times as many steps of an arm that copies: about the ratio of the deviations of their tokens a step


def step_arms(
    folders: Sequence[Path],
    checkpoints: Sequence[SelectorCheckpoint],
    policies: Sequence[FixedPolicy | MatchRule],
    verifier: str,
    profile: LatencyProfile,
    policy: str = "auto",
) -> list[StepArm]:
    """No drafting, then each checkpoint's selector and best static tree, then the policies asked for.

    A selector is measured itself, also where it did not pay in training and decoding runs its static tree, which its
    name then says; `policy` is its head, or an action or a rule that stands in its place. Checkpoints that share a
    verifier carry their `folders` in their names.
    """
    fixed = fixed_policy(policy)
    arms = [StepArm(NO_DRAFTING, get_verifier(verifier), FixedPolicy((1, 0, 0)))]
    for name, checkpoint in zip(arm_names(folders, checkpoints), checkpoints, strict=True):
        own, static = get_verifier(checkpoint.config.verifier), Expansion(*checkpoint.config.best_static)
        opponent = f"{name} static {static}"
        if fixed is None:
            unpaid = " (did not pay in training)" * (policy == "auto" and not checkpoint.beats_static)
            chosen = f"{name} selector{unpaid}" if policy == "auto" else f"{name} selector's {policy} head"
            arms.append(StepArm(chosen, own, SelectorPolicy(checkpoint, profile, policy), opponent))
        elif fixed.actions != (static,):
            arms.append(StepArm(f"{name} {_title(fixed)}", own, fixed, opponent))
        arms.append(StepArm(opponent, own, FixedPolicy(static)))
    statics = {arm.verifier.name: arm.against for arm in arms if arm.against}
    for asked in policies:
        against = statics.get(verifier) if isinstance(asked, MatchRule) else None
        arms.append(StepArm(f"{verifier} {_title(asked)}", get_verifier(verifier), asked, against))
    rules = {arm.verifier.name: arm.name for arm in reversed(arms) if isinstance(arm.policy, MatchRule)}
    arms = [
        arm._replace(rule=rules.get(arm.verifier.name)) if isinstance(arm.policy, SelectorPolicy) else arm
        for arm in arms
    ]
    for arm in arms:
        for action in getattr(arm.policy, "actions", ()):
            check_action(arm.verifier, action)
    weighted = [arm._replace(weight=COPYING if _copies(arm.policy) else 1) for arm in reversed(arms)]
    return list({arm.name: arm for arm in weighted}.values())[::-1]


def _copies(policy: Any) -> bool:
    return any(isinstance(action, CopyExpansion) for action in policy.actions)


def _title(policy: FixedPolicy | MatchRule) -> str:
    return f"static {policy.expansion}" if isinstance(policy, FixedPolicy) else f"rule {policy}"


def arm_names(folders: Sequence[Path], checkpoints: Sequence[SelectorCheckpoint]) -> list[str]:
    """The verifier of each checkpoint, followed by its folder where another one has the same verifier."""
    verifiers = [checkpoint.config.verifier for checkpoint in checkpoints]
    return [
        f"{verifier} {folder}" if verifiers.count(verifier) > 1 else verifier
        for verifier, folder in zip(verifiers, folders, strict=True)
    ]


def shared_warp(checkpoints: Sequence[SelectorCheckpoint]) -> Any:
    """The draft's sampling of all checkpoints, which take turns in one text. Raises UserError where they differ."""
    warps = {checkpoint.config.draft_warp for checkpoint in checkpoints} or {"same"}
    if len(warps) > 1:
        raise UserError(f"checkpoint names selectors with draft_warp {' and '.join(map(str, warps))}: give one kind.")
    return warps.pop()


def shipped_checkpoints(draft: str) -> list[Path]:
    """Folders of selectors beside a draft's folder, sorted; none where the draft is no folder."""
    folder = find(draft)
    configs = sorted(folder.parent.glob("*/config.json")) if folder.is_dir() else []
    return [path.parent for path in configs if "verifier" in read_json(path, REMEDY)]
