"""Statistics of tables: exact where they say so, near where they do not, and the same in every process."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.optimizer.stats import COUNTED, table_stats
from helix.optimizer.tokens import estimate, from_ids

CHARS = from_ids("characters", lambda text: [ord(char) for char in text])


def test_a_small_table_is_counted() -> None:
    rows: list[dict[str, Any]] = [
        {"shop": "a", "city": "x", "note": "1234", "tags": ["p", "q"]},
        {"shop": "b", "city": "x", "note": "12", "tags": ["p"]},
        {"shop": "a", "city": "x", "note": None, "tags": []},
        {"shop": "c", "city": "y", "note": "12", "tags": None},
    ]
    found = table_stats(rows, CHARS)
    assert found.rows == 4
    assert {name: column.distinct for name, column in found.columns.items()} == {
        "shop": 3, "city": 2, "note": 3, "tags": 4,
    }  # fmt: skip
    assert all(column.exact for column in found.columns.values())
    assert found.columns["note"].tokens == 2.0
    assert found.columns["note"].nulls == 0.25
    assert found.columns["note"].p90 == 4.0
    assert found.columns["tags"].items == 1.0
    assert found.columns["shop"].items is None
    assert ("shop", "city") in found.determines
    assert ("city", "shop") not in found.determines


def test_values_are_told_apart_as_prompts_show_them() -> None:
    found = table_stats([{"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": None}, {"a": ""}], CHARS)
    # 1 and "1" look alike; 1.0, true, null and the empty text do not.
    assert found.columns["a"].distinct == 5


def test_no_rows() -> None:
    found = table_stats([], CHARS, ["a"])
    assert (found.rows, found.columns, found.determines) == (0, {}, ())


@given(st.lists(st.fixed_dictionaries({name: st.integers(0, 3) for name in "abc"}), min_size=1, max_size=30))
def test_dependencies_are_those_of_the_rows(rows: list[dict[str, int]]) -> None:
    found = set(table_stats(rows, CHARS).determines)
    for one in "abc":
        for other in "abc":
            if one != other:
                pairs = {(row[one], row[other]) for row in rows}
                assert ((one, other) in found) == (len(pairs) == len({row[one] for row in rows}))


def many(rows: int) -> Iterator[dict[str, str]]:
    for number in range(rows):
        yield {
            "id": f"row {number}",
            "context": f"context {number // 6} " * (1 + number % 3),
            "kind": "k" * (number % 5),
        }


def test_a_large_table_is_near_and_takes_little_memory() -> None:
    rows = 2 * COUNTED
    list(many(10))
    tracemalloc.start()
    found = table_stats(many(rows), estimate())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.rows == rows
    assert not found.columns["id"].exact
    assert found.columns["id"].distinct == pytest.approx(rows, rel=0.06)
    assert (found.columns["kind"].distinct, found.columns["kind"].exact) == (5, True)
    assert found.columns["kind"].tokens == pytest.approx(0.8, rel=0.01)
    # The hashes of a column before it is estimated, and a few tables of a batch.
    assert peak < 40_000_000
    assert ("id", "context") not in found.determines


def test_tokens_are_scaled_from_a_sample_by_characters() -> None:
    rows = [{"text": "word " * (1 + number % 7)} for number in range(5000)]
    words = from_ids("words", lambda text: [1] * len(text.split()))
    found = table_stats(rows, words).columns["text"]
    exact = sum(len(row["text"].split()) for row in rows) / len(rows)
    assert found.tokens == pytest.approx(exact, rel=0.01)
    assert found.p90 == 7.0
