"""Token counts: the estimate and what it is additive in, and tokenizers made of functions and files."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.errors import OptionError
from helix.optimizer.tokens import estimate, estimated_tokens, from_file, from_ids, from_message_counts


@given(st.text(), st.text())
def test_estimate_is_additive(first: str, second: str) -> None:
    assert estimated_tokens(first + second) == pytest.approx(estimated_tokens(first) + estimated_tokens(second))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        # What Llama 3 and Qwen 2.5 vocabularies were published to spend, roughly; a small English one spends more.
        ("The quick brown fox jumps over the lazy dog, and the dog sleeps on all the same. " * 10, 150, 250),
        ("1,452.4 1,146.2 1,036.9 44.1 56.7", 14, 30),
        ("Все люди рождаются свободными и равными в своем достоинстве и правах.", 18, 40),
        ("人人生而自由,在尊严和权利上一律平等。", 12, 20),
        ("มนุษย์ทั้งปวงเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์", 22, 48),
        ("🙂🙂🙂", 3, 9),
        ("", 0, 0),
        (" ", 1, 1),
    ],
)
def test_estimate_is_about_right(text: str, low: int, high: int) -> None:
    assert low <= estimate().count(text) <= high
    assert not estimate().exact
    assert estimate().ids(text) is None


def test_ids_give_counts() -> None:
    words = from_ids("words", lambda text: [len(word) for word in text.split()], turn=2)
    assert words.exact
    assert words.count("one three five") == 3
    assert words.ids("one three") == array("I", [3, 5])
    assert words.ids("") == array("I")
    assert words.count("") == 0
    assert words.turn == 2


def test_a_count_is_asked_once() -> None:
    asked: list[str] = []

    def ids(text: str) -> Sequence[int]:
        asked.append(text)
        return [1] * len(text)

    words = from_ids("counting", ids)
    assert [words.count("same"), words.count("same"), words.count("other")] == [4, 4, 5]
    assert asked == ["same", "other"]


def test_message_counts_leave_the_template_out() -> None:
    def count(messages: Sequence[tuple[str, str]]) -> int:
        # A template of 4 tokens for each message and 3 for the reply's turn; a token for each word.
        return sum(4 + len(text.split()) for _, text in messages) + 3

    found = from_message_counts("server", count)
    assert found.exact
    assert found.turn == 4
    assert found.count("three little words") == 3
    assert found.ids("three") is None


def test_a_file_needs_its_library_and_must_be_one(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        with pytest.raises(OptionError, match="pip install tokenizers"):
            from_file(file)
        return
    with pytest.raises(OptionError, match="does not exist"):
        from_file(file)
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(OptionError, match=r"not a tokenizer\.json"):
        from_file(file)
    vocab = {"<|im_start|>": 0, "<|im_end|>": 1, "good": 2, "day": 3, "[UNK]": 4}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}
    file.write_text(json.dumps({"model": model, "pre_tokenizer": {"type": "Whitespace"}}), encoding="utf-8")
    found = from_file(file)
    assert found.ids("good day sir") == array("I", [2, 3, 4])
    assert found.count("good day") == 2
