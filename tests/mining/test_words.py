"""What the words of the user say of constants."""

from __future__ import annotations

import math

import pytest

from helix.mining.words import Words

SIZE = ("make", "size")


def counted(words: Words, unit: float = 1.0) -> None:
    for _ in range(4):
        words.learn(SIZE, "large", ("big", "a"), unit)
        words.learn(SIZE, "small", ("tiny", "a"), unit)


@pytest.mark.parametrize("unit", [1.0, 2.5])
def test_a_phrase_lifts_the_values_that_it_came_with(unit: float) -> None:
    words = Words()
    counted(words, unit)
    found = words.lifts(SIZE, ("a", "big"), lambda: {'"large"': 0.5, '"small"': 0.5}, unit)
    here = (4 + 0.5) / (4 + 1)
    assert found == {'"large"': (pytest.approx(math.log(here / 0.51 + 0.01)), pytest.approx(here))}
    assert words.lifts(("make", "other"), ("a",), dict, unit) == {}
    assert words.lifts(SIZE, ("never said",), dict, unit) == {}


def test_what_was_worked_out_is_forgotten_where_the_counts_or_the_unit_change() -> None:
    words = Words()
    counted(words)
    rates = {'"large"': 0.5, '"small"': 0.5}
    phrases = ("big",)
    before = words.lifts(SIZE, phrases, lambda: rates, 1.0)
    assert words.lifts(SIZE, phrases, lambda: pytest.fail("worked out again"), 1.0) is before
    words.learn(SIZE, "large", phrases, 1.0)
    words.changed(SIZE)
    after = words.lifts(SIZE, phrases, lambda: rates, 1.0)
    assert after['"large"'] > before['"large"']
    assert words.lifts(SIZE, phrases, lambda: rates, 2.0)['"large"'] < after['"large"']


def test_a_value_that_was_seen_too_seldom_does_not_count() -> None:
    words = Words()
    counted(words)
    assert words.lifts(SIZE, ("big",), dict, 1.0) == {}
    words.counts[SIZE]["big"].clear()
    words.forget()
    assert words.lifts(SIZE, ("big",), lambda: {'"large"': 0.5}, 1.0) == {}
    words.learn(SIZE, "x" * 80, ("long",) * 4, 1.0)
    assert "long" not in words.counts[SIZE]
