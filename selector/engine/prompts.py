"""Token ids of a prompt, the one way that decoding, data generation and distillation encode text."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from selector.errors import UserError, first_line

MARK = "\N{REPLACEMENT CHARACTER}"  # stands at the end of an open turn while it is rendered
NO_TEMPLATE = (
    "the tokenizer has no chat template: prompts are encoded as plain text, their turns joined by blank lines."
)


def encode_chat(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], chat_template: bool = True, open_turn: bool = False
) -> list[int]:
    """Token ids of chat turns `{"role", "content"}`, up to where the answer begins; `open_turn` does not end the last.

    `tokenizer` is a transformers tokenizer. Without `chat_template` the contents are joined by blank lines, and get
    the tokenizer's special tokens; so they do, with a warning, where the tokenizer has no template. Raises UserError
    for text that no tokenizer takes, or that the template refuses.
    """
    contents = [message["content"] for message in messages]
    for text in contents:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UserError(f"prompt is {text[:40]!r}: it holds half a character (a lone surrogate); give valid text.")
    if chat_template and not tokenizer.chat_template:
        warnings.warn(NO_TEMPLATE, stacklevel=1)
        chat_template = False
    if not any(contents) and not open_turn:
        raise UserError("prompt is '': give at least one character.")
    tokens = _templated(tokenizer, messages, open_turn) if chat_template else tokenizer("\n\n".join(contents)).input_ids
    if not tokens and not open_turn:
        raise UserError(f"prompt is {contents[-1][:40]!r}, which has no tokens: give it a text.")
    return [int(token) for token in tokens]


def closing_tokens(tokenizer: Any) -> list[int]:
    """How the template ends a user's turn: its tokens up to the first special one, all of them where none is.

    Empty for a tokenizer without a template.
    """
    if not tokenizer.chat_template:
        return []
    rendered = _rendered(tokenizer, [{"role": "user", "content": MARK}], add_generation_prompt=True)
    tokens = [int(token) for token in tokenizer(rendered.rpartition(MARK)[2], add_special_tokens=False).input_ids]
    special = set(tokenizer.all_special_ids)
    return tokens[: next((place + 1 for place, token in enumerate(tokens) if token in special), len(tokens))]


def _templated(tokenizer: Any, messages: Sequence[Mapping[str, str]], open_turn: bool) -> Any:
    """An open turn is cut where its text ends, whatever the template writes there or whether it strips the text."""
    if open_turn:
        *before, last = messages
        marked = [*before, {**last, "content": last["content"] + MARK}]
        text = _rendered(tokenizer, marked, add_generation_prompt=False).rpartition(MARK)[0]
    else:
        text = _rendered(tokenizer, messages, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False).input_ids


def _rendered(tokenizer: Any, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> str:
    try:
        return str(
            tokenizer.apply_chat_template(
                [dict(message) for message in messages], tokenize=False, add_generation_prompt=add_generation_prompt
            )
        )
    except Exception as error:  # whatever a template raises: it is a program that came with the tokenizer
        raise UserError(
            f"prompt is refused by the tokenizer's chat template ({first_line(error)}): give turns that the template "
            "takes, or set chat_template to false."
        ) from None
