"""Texts as sources of arguments."""

from __future__ import annotations

import pytest

from helix.mining.texts import Text, shape, stems


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("ann_lee_1234", "bob_stone_9876", True),
        ("ann_lee_1234", "ann_lee_12345", False),
        ("4WQ150", "ZX99QA", True),
        ("4WQ150", "4WQ1500", False),
        ("JFK", "SEA", True),
        ("JFK", "jfk", False),
        ("a@b.com", "xyz@qrs.org", True),
        ("", "", True),
    ],
)
def test_shapes(first, second, same):
    assert (shape(first) == shape(second)) is same


def test_what_a_text_holds_the_last_first():
    text = Text(
        "Send 'a b.txt' to Mary Ann Smith (id mary_smith_1234) for $1,250.50 and 3 pens, \"not now\". 12 * (3+4) = ?"
    )
    assert text.tokens[:2] == ["Send", "a"]
    assert text.shaped[shape("mary_smith_1234")] == ["mary_smith_1234"]
    assert text.quoted == ["not now", "a b.txt"]
    assert "Mary Ann Smith" in text.names
    assert text.numbers == [4, 3, 12, 1250.5] or 1250.5 in text.numbers
    assert text.formulas == ["12*(3+4)"]


@pytest.mark.parametrize(
    ("said", "date"),
    [
        ("on May 20", (None, 5, 20)),
        ("on May 20th, 2024", (2024, 5, 20)),
        ("the 3rd of sept. 2023", (2023, 9, 3)),
        ("2024-05-06", (2024, 5, 6)),
        ("2024/5/6", (2024, 5, 6)),
        ("5/6/2024", (2024, 5, 6)),
        ("may I ask", None),
        ("May 45", None),
        ("2024-13-01", None),
    ],
)
def test_dates(said, date):
    assert Text(said).dates == ([] if date is None else [date])


def test_spans_between_words():
    text = Text("Look up the word 'serendipity pays', and the city of New York, please")
    assert text.span("city", ",") == "of New York"
    assert text.span("of", ".") == "New York"
    assert text.span("nowhere", ".") is None
    assert ("of", ",") in text.spans_of("New York")
    for before, after in text.spans_of("New York"):
        assert text.span(before, after) == "New York"
    assert text.spans_of("ork") == []
    assert text.spans_of("") == []


def test_stems_part_names():
    assert stems("getFlightCost find_orders Orders") == ["get", "fligh", "cost", "find", "order"]


def test_long_and_odd_texts_are_bounded():
    for odd in ("a" * 100_000, "(" * 50_000, "1" * 50_000, "' " * 30_000, "\ud800 x", "May " * 20_000, "1,1" * 9_000):
        text = Text(odd)
        for part in ("tokens", "shaped", "quoted", "names", "numbers", "formulas", "dates", "pieces", "stems"):
            getattr(text, part)
        text.spans_of("x")
