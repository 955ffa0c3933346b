"""Prompts as token ids: one behaviour with a chat template, without one, and with one that raises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from selector.engine.prompts import closing_tokens, encode_chat
from selector.errors import UserError

TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


class Letters:
    """One token a letter; special tokens are -1."""

    chat_template: str | None = "yes"
    all_special_ids = (ord("|"), ord("#"))

    def apply_chat_template(self, messages: Any, tokenize: bool, **kind: bool) -> str:
        if messages[0]["role"] == "system":
            raise ValueError("System role not supported\nby this model")
        return "<" + messages[0]["content"] + (">" if kind.get("add_generation_prompt") else "")

    def __call__(self, text: str, add_special_tokens: bool = True) -> Any:
        return SimpleNamespace(input_ids=[-1] * add_special_tokens + [ord(letter) for letter in text])


def text(tokens: list[int]) -> str:
    return "".join("^" if token < 0 else chr(token) for token in tokens)


def test_template() -> None:
    assert text(encode_chat(Letters(), TURNS[1:])) == "<Why?>"
    assert text(encode_chat(Letters(), TURNS[1:], open_turn=True)) == "<Why?"
    assert text(encode_chat(Letters(), TURNS, chat_template=False)) == "^Be brief.\n\nWhy?"


def test_no_template_is_said() -> None:
    tokenizer = Letters()
    tokenizer.chat_template = None
    with pytest.warns(UserWarning, match="no chat template"):
        assert text(encode_chat(tokenizer, TURNS)) == "^Be brief.\n\nWhy?"


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "give at least one character"), ("half \ud83e", "lone surrogate")],
)
def test_texts_that_no_tokenizer_takes(content: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        encode_chat(Letters(), [{"role": "user", "content": content}])


def test_a_template_that_raises() -> None:
    with pytest.raises(UserError, match=r"chat template \(System role not supported\): give turns"):
        encode_chat(Letters(), TURNS)


class Template(Letters):
    """Writes a turn between `before` and `after`, its text stripped as most templates do."""

    def __init__(self, before: str, after: str) -> None:
        self.before, self.after = before, after

    def apply_chat_template(self, messages: Any, tokenize: bool, **kind: bool) -> str:
        return self.before + messages[-1]["content"].strip() + self.after


@pytest.mark.parametrize(
    ("after", "closing"),
    [("|\n#assistant\n", "|"), ("\n|", "\n|"), (" [/INST]", " [/INST]"), ("\n\nAssistant:", "\n\nAssistant:")],
)
@pytest.mark.parametrize("content", ["Why", "Why [", ""])
def test_an_open_turn_ends_with_its_text_in_any_template(after: str, closing: str, content: str) -> None:
    tokenizer = Template("#user\n", after)
    turns = [{"role": "user", "content": content}]
    assert text(encode_chat(tokenizer, turns, open_turn=True)) == "#user\n" + content
    assert text(closing_tokens(tokenizer)) == closing


def test_without_a_template_no_turn_closes() -> None:
    tokenizer = Letters()
    tokenizer.chat_template = None
    assert closing_tokens(tokenizer) == []
