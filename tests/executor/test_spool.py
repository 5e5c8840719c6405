"""Rows held back in memory and on disk come back in one and the same order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix.executor.spool import Spool
from helix.executor.values import Failure

NUMBERS = st.none() | st.integers(-5, 5) | st.floats(-3, 3, allow_nan=False) | st.integers(2**62, 2**63 - 1)
TEXTS = st.none() | st.text(st.characters(codec="utf-8"), max_size=3)
KEYS = st.lists(st.tuples(NUMBERS, TEXTS), max_size=40)


def drained(keys: list[tuple[Any, ...]], descending: tuple[bool, ...], in_memory: int) -> list[Any]:
    spool = Spool(descending, in_memory)
    for number, key in enumerate(keys):
        spool.add(key, [number, *key])
    assert len(spool) == len(keys)
    return list(spool.drain())


@given(KEYS, st.tuples(st.booleans(), st.booleans()))
def test_memory_and_disk_agree(keys: list[tuple[Any, ...]], descending: tuple[bool, bool]) -> None:
    assert drained(keys, descending, 3) == drained(keys, descending, 1000)


def test_order_is_stable_and_null_comes_last_both_ways() -> None:
    keys = [(2,), (None,), (1,), (2,), (1.5,)]
    assert [item[0] for item in drained(keys, (False,), 1000)] == [2, 4, 0, 3, 1]
    assert [item[0] for item in drained(keys, (True,), 1000)] == [0, 3, 4, 2, 1]


def test_failures_survive_the_disk() -> None:
    spool = Spool((False,), 1)
    failure = Failure("engine", "gone", step="a[1].b", order=(3, 1), attempts=3, raw="\ud800", traceback="t")
    spool.add((1,), [failure, {"value": "\ud800"}])
    ((back, value),) = list(spool.drain())
    assert [getattr(back, name) for name in Failure.__slots__] == [getattr(failure, name) for name in Failure.__slots__]
    assert value == {"value": "\ud800"}


def test_a_spool_is_empty_after_draining() -> None:
    spool = Spool((False,), 2)
    for number in range(5):
        spool.add((number,), number)
    assert list(spool.drain()) == [0, 1, 2, 3, 4]
    assert len(spool) == 0
