"""Token ids of a prompt, the one way that decoding, data generation and distillation encode text."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from selector.errors import UserError, first_line

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
    if not any(contents):
        raise UserError("prompt is '': give at least one character.")
    tokens = _templated(tokenizer, messages, open_turn) if chat_template else tokenizer("\n\n".join(contents)).input_ids
    if not tokens:
        raise UserError(f"prompt is {contents[-1][:40]!r}, which has no tokens: give it a text.")
    return [int(token) for token in tokens]


def _templated(tokenizer: Any, messages: Sequence[Mapping[str, str]], open_turn: bool) -> Any:
    kind = {"continue_final_message": True} if open_turn else {"add_generation_prompt": True}
    try:
        text = tokenizer.apply_chat_template([dict(message) for message in messages], tokenize=False, **kind)
    except Exception as error:  # whatever a template raises: it is a program that came with the tokenizer
        raise UserError(
            f"prompt is refused by the tokenizer's chat template ({first_line(error)}): give turns that the template "
            "takes, or set chat_template to false."
        ) from None
    return tokenizer(text, add_special_tokens=False).input_ids
