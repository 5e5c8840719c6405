"""The memo of finished calls: found again in memory and on disk, failures too, with bounded memory."""

from __future__ import annotations

import pytest

from helix.errors import HelixError
from helix.executor.memo import Memo
from helix.executor.values import Failure


def key(number: int) -> bytes:
    return b"key %d" % number


def test_what_was_never_put_is_not_there() -> None:
    memo = Memo()
    assert memo.get(b"none") is None
    memo.close()


def test_replies_are_found_in_memory_and_on_disk() -> None:
    memo = Memo(recent=10)
    for number in range(3000):
        memo.put(key(number), f"reply {number}")
    assert [memo.get(key(number)) for number in (0, 1, 1500, 2999)] == [
        "reply 0",
        "reply 1",
        "reply 1500",
        "reply 2999",
    ]
    assert memo.get(key(3000)) is None
    memo.close()


def test_long_replies_go_to_disk_before_they_are_many() -> None:
    memo = Memo(recent=1000, chars=10_000)
    for number in range(50):
        memo.put(key(number), str(number % 10) * 1000)
    assert sum(len(text) for text in memo._recent.values() if isinstance(text, str)) <= 10_000
    assert [memo.get(key(number)) for number in range(50)] == [str(number % 10) * 1000 for number in range(50)]
    memo.close()


def test_failures_come_back_as_failures_with_all_their_parts() -> None:
    memo = Memo(recent=0)
    failure = Failure(
        "schema", "bad \ud83d reply", step="a[1].b", order=(3, 1), attempts=2, raw="no \ud83d", traceback="Trace"
    )
    memo.put(b"bad", failure)
    for number in range(2000):
        memo.put(key(number), "x")
    found = memo.get(b"bad")
    assert isinstance(found, Failure)
    assert found is not failure
    assert found.parts() == failure.parts()
    memo.close()


@pytest.mark.parametrize("text", ["", "null", "\ud83d alone", "ไทย 🦉", "\0", '["failure"]'])
def test_texts_of_all_kinds_survive_the_disk(text: str) -> None:
    memo = Memo(recent=0)
    memo.put(b"text", text)
    for number in range(2000):
        memo.put(key(number), "x")
    assert memo.get(b"text") == text
    memo.close()


def test_a_full_disk_is_one_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    def full(*args: object, **more: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite3, "connect", full)
    memo = Memo(recent=0, chars=10)
    with pytest.raises(HelixError, match="cannot keep replies in a temporary file: database or disk is full"):
        memo.put(b"a", "long enough to spill")


def test_closing_twice_does_no_harm() -> None:
    memo = Memo(recent=0)
    for number in range(2000):
        memo.put(key(number), "x")
    memo.close()
    memo.close()
    assert memo.get(key(1)) is None
