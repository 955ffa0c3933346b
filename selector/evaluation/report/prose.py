"""The result in plain words: what was gained or lost, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import stdev

from selector.evaluation.results import VerifierResult
from selector.network.checkpoint import SelectorCheckpoint
from selector.offline.baselines import SMALL_GAP
from selector.statistics import Interval

LABELS = {
    "plain": "plain decoding",
    "best_static": "best static",
    "best_static_per_setting": "static per setting",
    "best_chain": "best chain (K = 1)",
    "best_root_branching": "best with L1 = 0",
    "ridge": "ridge",
    "ridge_scalars": "ridge (scalars)",
    "boosting": "boosted trees",
    "boosting_scalars": "boosted trees (scalars)",
    "entropy_heuristic": "entropy rule",
    "selector_policy": "selector (policy)",
    "selector_regressor": "selector (regressor)",
    "oracle": "oracle",
    "oracle_in_sample": "oracle, same samples",
}


def verdict(ratio: Interval) -> str:
    """`gain` or `loss` where the whole interval lies on one side of 1, else `no difference shown`."""
    if ratio.low is not None and ratio.low > 1:
        return "gain"
    if ratio.high is not None and ratio.high < 1:
        return "loss"
    return "no difference shown"


def number(value: float | None, digits: int = 3, unit: str = "") -> str:
    """A number for people; a dash where it is undefined."""
    return "–" if value is None else f"{value:.{digits}f}{unit}".replace("-", "−")


def tree(result: VerifierResult) -> str:
    """The best static tree, not to be broken over lines."""
    return str(result.best_static).replace(" ", "\u00a0")


def with_interval(interval: Interval, digits: int = 3) -> str:
    """`1.234 [1.200, 1.268]`."""
    if interval.low is None:
        return number(interval.value, digits)
    return f"{number(interval.value, digits)} [{number(interval.low, digits)}, {number(interval.high, digits)}]"


def percent(interval: Interval) -> str:
    """A share as `54% [31%, 80%]`."""
    scaled = Interval(*(None if part is None else 100 * part for part in interval))
    parts = [number(part, 0, "%") for part in scaled]
    return parts[0] if scaled.low is None else f"{parts[0]} [{parts[1]}, {parts[2]}]"


def selector_sentences(result: VerifierResult, best: VerifierResult) -> list[str]:
    """What the selector of one verifier gains or loses; `best` is the verifier with the fastest static tree."""
    assert result.selector is not None
    scores, policy = result.scores, result.selector
    ratio = scores.ratio(policy, "best_static")
    sentences = [_against_static(result, ratio), _against_plain(scores.ratio(policy, "plain"))]
    paper = scores.ratio(policy, "best_root_branching")
    sentences.append(
        f"Against the best root-branching tree, the paper's kind of baseline: {with_interval(paper)} times."
    )
    if best is not result:
        other = scores.ratio(policy, "best_static", best.scores)
        sentences.append(
            f"Against the best static tree of the fastest verifier ({best.verifier} {tree(best)}): "
            f"{with_interval(other)} times."
        )
    gap = scores.gap_recovered(policy)
    if gap.value is not None and result.oracle_gap.value and result.oracle_gap.value > 1 + SMALL_GAP:
        sentences.append(f"Share of the gap between best static and oracle that it recovers: {percent(gap)}.")
    return [*sentences, _losing(result)]


def _against_static(result: VerifierResult, ratio: Interval) -> str:
    assert ratio.value is not None
    size = f"{abs(ratio.value - 1) * 100:.1f}%"
    static = f"the best static tree {tree(result)} (ratio {with_interval(ratio)})"
    match verdict(ratio):
        case "gain":
            return f"A gain: the selector is {size} faster than {static}."
        case "loss":
            return f"A loss: the selector is {size} slower than {static}. Decode with the static tree instead."
    if abs(ratio.value - 1) < 5e-4:
        return f"No difference is shown: the selector is as fast as {static}; the interval includes 1."
    direction = "faster" if ratio.value > 1 else "slower"
    return f"No difference is shown: the selector is {size} {direction} than {static}, but the interval includes 1."


def _against_plain(ratio: Interval) -> str:
    text = f"Against plain decoding it makes {with_interval(ratio)} times the tokens per second."
    return text + (" Speculation does not pay here." if verdict(ratio) == "loss" else "")


def _losing(result: VerifierResult) -> str:
    losing, total, losses = result.losing_cells, len(result.cells), result.losses
    text = ""
    if losses is not None:
        text = (
            f"By labels that carry noise it is below the best static tree at {losses.roots:.0%} of roots and on "
            f"{losses.prompts:.0%} of prompts, there by {losses.depth:.1%} on average; the worst prompt, "
            f"{losses.worst_prompt}, has {losses.worst_ratio:.2f} times the static tree's throughput. "
        )
    if not losing:
        return f"{text}It is more than 0.5% below it in none of {total} cells of task and setting."
    worst = losing[0]
    return text + (
        f"It is more than 0.5% below it in {len(losing)} of {total} cells of task and setting; the "
        f"worst is {worst.task} at temperature {worst.setting[0]:g}, top-p {worst.setting[1]:g}: "
        f"{with_interval(worst.ratio, 2)} from {worst.num_prompts} prompt{'s' * (worst.num_prompts > 1)}."
    )


def training_sentences(result: VerifierResult, checkpoints: Sequence[SelectorCheckpoint]) -> list[str]:
    """What became of the training of one verifier's `checkpoints`: what was kept, and how far its seeds are apart."""
    ratios, actions = result.run_ratios(result.selector or ""), result.scores.outcomes[result.selector or ""].actions
    sentences = _kept([checkpoint.config.metrics for checkpoint in checkpoints])
    if len(ratios) < 2:
        return sentences
    values = [ratio.value or 0.0 for ratio in ratios]
    found = f"Mean of {len(values)} training seeds; one by one: {', '.join(map(with_interval, ratios))}. "
    if (actions == actions[0]).all():
        return [f"{found}They choose alike at every root, so training differs in nothing here.", *sentences]
    winners = sum(verdict(ratio) == "gain" for ratio in ratios)
    found += (
        f"They lie between {min(values):.3f} and {max(values):.3f}, with a standard deviation of {stdev(values):.3f}; "
        f"{winners} of {len(values)} are a gain by themselves. Intervals are over prompts and do not hold that spread."
    )
    heads: list[str] = [checkpoint.config.default_head for checkpoint in checkpoints]
    head = (result.selector or "").removeprefix("selector_")
    if len(set(heads)) > 1:
        found += (
            f" All figures are those of the {head} head, which validation preferred for {heads.count(head)} of them."
        )
    return [found, *sentences]


def _kept(metrics: Sequence[dict[str, float]]) -> list[str]:
    """Which networks validation kept; nothing where the checkpoints do not say."""
    known = [entry for entry in metrics if {"learned", "corrected"} <= entry.keys()]
    counts = {
        "one tree for all roots, as nothing beat that": sum(not entry["learned"] for entry in known),
        "the linear model": sum(bool(entry["learned"]) and not entry["corrected"] for entry in known),
        "the MLP on top of it": sum(bool(entry["corrected"]) for entry in known),
    }
    kept = [f"{name} ({count} of {len(known)})" if len(known) > 1 else name for name, count in counts.items() if count]
    return [f"Kept after training, by validation prompts: {'; '.join(kept)}."] if kept else []


def oracle_sentence(result: VerifierResult) -> str:
    """How much there is to gain, and whether the labels can show it."""
    gap = result.oracle_gap
    ceiling = result.scores.ratio("oracle_in_sample", "best_static").value
    text = (
        f"With {result.verifier}, choosing the best tree at every root would give {with_interval(gap)} times the best "
        f"static tree when one half of a root's samples chooses and the other scores, and {number(ceiling)} when "
        "the same samples do both, which flatters it."
    )
    if gap.low is None or gap.low <= 1:
        return text + " These labels do not show a gap to learn from: take more samples a root or more prompts."
    if gap.value is not None and gap.value < 1 + SMALL_GAP:
        return text + f" That gap is real but under {SMALL_GAP:.0%}: too small to be worth a selector."
    return text


def overview(results: Sequence[VerifierResult]) -> list[str]:
    """One sentence on the static trees, and one on those that do not pay."""
    best = max(results, key=lambda result: result.static_rate)
    ratio = best.scores.ratio("best_static", "plain")
    sentences = [
        f"Without a selector, the fastest verifier is {best.verifier} with the tree {tree(best)}: "
        f"{with_interval(ratio)} times plain decoding."
    ]
    prompts = len(best.scores.roots.prompt_names)
    if prompts < 10:
        sentences.append(f"All of this rests on {prompts} test prompts; intervals from so few say too little.")
    return sentences
