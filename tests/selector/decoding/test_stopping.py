"""Where a text ends, with a tokenizer of single bytes."""

from __future__ import annotations

import pytest

from selector.decoding.stopping import Stopping, TextStream


def from_bytes(tokens: list[int]) -> str:
    return bytes(tokens).decode(errors="replace")


@pytest.mark.parametrize("stop", ["🦄🦄🦄", "end", "é", "日本語。"])
@pytest.mark.parametrize("block", [1, 3, 100])
def test_stop_strings_of_many_tokens_a_character(stop: str, block: int) -> None:
    text = "🦄 some text, 日本 and é".replace(stop, "") + stop
    tokens = list((text + "more 🦄").encode())
    stopping = Stopping(1000, (), stop, from_bytes)
    while stopping.finish is None:
        stopping.accept(tokens[len(stopping.tokens) :][:block])
    assert stopping.finish == "stop"
    assert stopping.tokens == list(text.encode())
    assert stopping.cut(from_bytes(stopping.tokens)) == text


def test_streamed_pieces_hold_whole_characters() -> None:
    stream, text = TextStream(from_bytes), "a🦄é日"
    pieces = [stream.add([token], last=False) for token in text.encode()]
    assert [piece for piece in pieces if piece] == list(text)
