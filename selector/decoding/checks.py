"""Checks of a decoder's input before anything runs; each refusal is a sentence."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from numbers import Integral
from reprlib import repr as short
from typing import Any

from selector.config import LONGEST_COPY
from selector.distributions import Sampling
from selector.engine.language_model import LanguageModel
from selector.errors import UserError
from selector.trees.block import Block, mixed_refusal
from selector.trees.expansion import Action, CopyExpansion, Expansion
from selector.trees.verifier import Verifier

SPECINFER_BRANCHES = 16  # its time grows with two to the number of branches
SEEDS = -(2**63), 2**64 - 1  # what torch takes


def check_tokens(tokens: Sequence[int], vocab_size: int) -> None:
    """Refuse an empty prompt and tokens that are not in the vocabulary."""
    if not tokens:
        raise UserError(f"prompt is {tokens!r}: give at least one token.")
    unknown = next((token for token in tokens if not 0 <= token < vocab_size), None)
    if unknown is not None:
        raise UserError(f"prompt holds token {unknown}: the vocabulary has tokens 0 to {vocab_size - 1}.")


def check_length(models: dict[str, LanguageModel], prompt_length: int, max_new_tokens: int) -> None:
    """Refuse a text that could grow past the positions of one of the models."""
    for name, model in models.items():
        limit = model.max_length
        if limit is None or prompt_length + max_new_tokens <= limit:
            continue
        room = limit - prompt_length
        way_out = f"give at most {room}" if room > 0 else "shorten the prompt"
        raise UserError(
            f"max_new_tokens is {max_new_tokens} after a prompt of {prompt_length} tokens, "
            f"and the {name} holds {limit} tokens in all: {way_out}."
        )


def check_call(max_new_tokens: Any, sampling: Any, seed: Any, stop_strings: Any) -> None:
    """Refuse arguments of another kind, and a seed that torch does not take."""
    if not _is_whole(max_new_tokens):
        raise UserError(f"max_new_tokens is {max_new_tokens!r}: give a whole number of 1 or more.")
    if not isinstance(sampling, Sampling):
        raise UserError(f"sampling is {sampling!r}: give a Sampling, as Sampling(temperature=0.7).")
    if not _is_whole(seed) or not SEEDS[0] <= seed <= SEEDS[1]:
        raise UserError(f"seed is {seed!r}: give an integer from -2**63 to 2**64 - 1.")
    texts = (stop_strings,) if isinstance(stop_strings, str) else stop_strings
    if not isinstance(texts, Collection) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"stop_strings is {stop_strings!r}: give a text, or a list of texts.")


def token_ids(name: str, tokens: Any, way_out: str) -> list[int]:
    """Token ids as whole numbers; a tensor's or an array's are taken too."""
    try:
        return [operator.index(token) for token in tokens]
    except TypeError:
        raise UserError(f"{name} is {short(tokens)}: give {way_out}.") from None


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_expansion(expansion: Action | tuple[int, ...]) -> Action:
    """The canonical form of an action; `(K, L1, L2)` may be a plain tuple."""
    if isinstance(expansion, CopyExpansion):
        if not _is_whole(expansion.length) or not 1 <= expansion.length <= LONGEST_COPY:
            raise UserError(f"length of a copy is {expansion.length!r}: give 1 to {LONGEST_COPY} tokens.")
        drafted = check_expansion(expansion.drafted).drafted
        return CopyExpansion(expansion.length, drafted, expansion.beside).canonical()
    whole = all(type(number) is int for number in expansion)
    if len(expansion) != 3 or not whole or expansion[0] < 1 or min(expansion) < 0:
        raise UserError(
            f"expansion is {tuple(expansion)}: give whole numbers (K, L1, L2) with K of 1 or more, "
            "and L1 and L2 of 0 or more."
        )
    return Expansion(*expansion).canonical()


def check_action(verifier: Verifier, action: Action) -> None:
    """Refuse a tree on which the verifier would hardly end, and a copied chain beside drafts where it takes none."""
    branches = action.drafted.num_branches
    if verifier.name == "specinfer" and branches > SPECINFER_BRANCHES:
        raise UserError(
            f"expansion is {action} for verifier 'specinfer', whose time doubles with each branch: "
            f"give K = {SPECINFER_BRANCHES} or less, not {branches}, or another verifier."
        )
    if isinstance(action, CopyExpansion) and action.beside and isinstance(verifier, Block):
        raise UserError(mixed_refusal(verifier.name))
