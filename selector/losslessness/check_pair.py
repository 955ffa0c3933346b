"""Check of a pair on this machine: decoding is lossless, and the checks see decoders that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from selector.decoding.checks import check_action
from selector.decoding.decoder import Decoder
from selector.decoding.policies import FixedPolicy, MatchRule, Policy, parse_policy
from selector.distributions import Sampling
from selector.errors import UserError
from selector.losslessness.broken_decoders import AlwaysAccept, KeptRows, WrongPositions
from selector.losslessness.finding import Finding, control
from selector.losslessness.model_checks import check_passes, check_text, check_vocabulary
from selector.losslessness.sampled_distribution import Cells, check_distribution
from selector.trees.expansion import Action, Expansion
from selector.trees.verifiers import get_verifier

PROMPTS = (
    "Why is the sky blue?",
    "Write a Python function that returns the longest word of a sentence.",
    "List three facts about rivers, one on each line.",
)
TREE = Expansion(3, 1, 2)
OWN_WARP = (1.0, 1.0)  # greedy texts are drafted by sampling: a greedy draft's branches would be one
SHORT = (1,)  # context of the broken passes
SAMPLING = Sampling(1.0)


def check_pair(
    pair: Any,
    prompts: Sequence[Sequence[int]],
    *,
    verifier: str = "traversal",
    policy: Policy | Action | tuple[int, int, int] = TREE,
    tokens: int = 48,
    texts: int = 300,
    seed: int = 0,
    say: Callable[[str], None] = lambda step: None,
) -> list[Finding]:
    """All checks of a pair and their controls: decoders that are broken on purpose, which the checks must see.

    Args:
        pair: target, draft and the tokens that end a text (see `Pair`).
        prompts: token ids, one list or more.
        verifier: verifier of the decoder that is checked.
        policy: of that decoder, see `Decoder`; with copies the details say how many of the tokens were copied.
        tokens: length of each greedy text.
        texts: how many texts are sampled after the first prompt.
        seed: of these texts.
        say: told what begins.

    Returns:
        One `Finding` each; decoding is lossless here if all of them `passed`.

    Raises:
        UserError: an unknown verifier, a policy that it does not take, or an empty prompt.

    Example:
        >>> pair = ddte.load_pair(config.pair)
        >>> findings = ddte.verify(pair, [pair.encode("Why is the sky blue?")], texts=100)
        >>> all(finding.passed for finding in findings)
        True
    """
    target, solver = pair.target, get_verifier(verifier)
    say("vocabularies, tree passes and caches")
    findings, noise = check_passes("target", target, prompts[0])
    findings = [check_vocabulary(pair), *findings, *check_passes("draft", pair.draft, prompts[0])[0]]
    broken: Any
    caught = []
    for place, (name, broken) in enumerate({"wrong positions": WrongPositions, "wrong rows kept": KeptRows}.items()):
        seen, _ = check_passes("target", target, prompts[0], broken(target), SHORT)
        caught.append(control(f"{name}, by {seen[place].check}", seen[place : place + 1]))

    say("greedy texts")
    decoder = Decoder(pair, solver, policy, OWN_WARP)
    for number, prompt in enumerate(prompts, 1):
        findings.append(check_text(f"prompt {number}", decoder, target, prompt, tokens, noise))
    careless = AlwaysAccept()
    text = check_text("", Decoder(pair, careless, policy, OWN_WARP), target, prompts[0], tokens, noise)
    caught.append(control(f"everything accepted, by {text.check}", [text]))

    say("sampled texts")
    prompt = prompts[0]
    cells = Cells(target, prompt, SAMPLING, texts)
    seeds = range(seed, seed + texts)
    subject = f"{verifier}, temperature {SAMPLING.temperature:g}"
    findings.append(check_distribution(subject, Decoder(pair, solver, policy), prompt, SAMPLING, cells, seeds))
    sampled = check_distribution("", Decoder(pair, careless, policy), prompt, SAMPLING, cells, seeds)
    caught.append(control(f"everything accepted, by {sampled.check}", [sampled]))
    return [*findings, *caught]


def check_settings(verifier: str, policy: str, tokens: int, texts: int) -> FixedPolicy | MatchRule:
    """The policy; settings that make no sense are refused before models are loaded. Raises UserError."""
    solver, parsed = get_verifier(verifier), parse_policy(policy)
    for action in parsed.actions:
        check_action(solver, action)
    for name, value, least in (("tokens", tokens, 2), ("texts", texts, 50)):
        if value < least:
            raise UserError(f"{name} is {value}: give {least} or more.")
    return parsed
