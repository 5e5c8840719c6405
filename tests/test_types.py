"""Types: how they are written, what fits them, and what they become on an engine."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import types

from helix.types import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    TABLE,
    TEXT,
    Choice,
    ListOf,
    Optional,
    Record,
    Type,
    fits,
    found,
    is_word,
    join,
    json_schema,
    mismatch,
    optional,
    parse_cell,
    quote,
    required,
    type_of,
)

YES_NO = Choice(("yes", "no"))
PERSON = Record((("name", TEXT), ("age", Optional(INT))))


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (TEXT, "text"),
        (TABLE, "table"),
        (ListOf(Optional(INT)), "list[int?]"),
        (YES_NO, 'choice["yes", "no"]'),
        (Choice(('a "b"', "c\\d\n")), 'choice["a \\"b\\"", "c\\\\d\\n"]'),
        (PERSON, "{ name: text, age: int? }"),
        (Record(()), "{}"),
        (Record((("first name", TEXT),)), '{ "first name": text }'),
        (Optional(ListOf(PERSON)), "list[{ name: text, age: int? }]?"),
    ],
)
def test_types_are_shown_as_the_language_writes_them(kind: Type, shown: str) -> None:
    assert str(kind) == shown


def test_quotes_show_what_a_reader_could_not_see() -> None:
    assert quote("ไทย 票 👩\u200d🚀 é") == '"ไทย 票 👩\u200d🚀 é"'
    assert quote('\t\r\n"\\') == '"\\t\\r\\n\\"\\\\"'
    assert quote("\x00\x7f\xa0\u200b\u202e\ufeff\ud800") == '"\\u{0}\\u{7f}\\u{a0}\\u{200b}\\u{202e}\\u{feff}\\u{d800}"'
    assert [is_word(text) for text in ("a", "ชื่อ", "a b", "1a", "", "a-b")] == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (TEXT, TEXT),
        (INT, FLOAT),
        (INT, JSON),
        (JSON, INT),
        (YES_NO, TEXT),
        (TEXT, YES_NO),
        (Choice(("yes",)), YES_NO),
        (INT, Optional(INT)),
        (Optional(INT), INT),
        (Optional(INT), Optional(FLOAT)),
        (ListOf(INT), ListOf(FLOAT)),
        (TABLE, ListOf(PERSON)),
        (ListOf(PERSON), TABLE),
        (Record((("name", TEXT),)), PERSON),
        (Record((("age", INT), ("name", YES_NO), ("more", BOOL))), PERSON),
    ],
)
def test_what_can_be_used_where(source: Type, target: Type) -> None:
    assert fits(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (FLOAT, INT),
        (TEXT, INT),
        (BOOL, INT),
        (INT, BOOL),
        (INT, TEXT),
        (Choice(("yes", "maybe")), YES_NO),
        (ListOf(TEXT), TEXT),
        (ListOf(TEXT), ListOf(INT)),
        (TABLE, TEXT),
        (PERSON, TEXT),
        (Record((("age", INT),)), PERSON),
        (Record((("name", INT),)), PERSON),
    ],
)
def test_what_cannot(source: Type, target: Type) -> None:
    assert not fits(source, target)


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        (TEXT, TEXT, TEXT),
        (INT, FLOAT, FLOAT),
        (YES_NO, TEXT, TEXT),
        (YES_NO, Choice(("maybe",)), TEXT),
        (Optional(INT), FLOAT, Optional(FLOAT)),
        (ListOf(INT), ListOf(FLOAT), ListOf(FLOAT)),
        (INT, TEXT, JSON),
        (Optional(INT), TEXT, JSON),
        (PERSON, TEXT, JSON),
    ],
)
def test_branches_join(left: Type, right: Type, joined: Type) -> None:
    assert join(left, right) == join(right, left) == joined


@given(types(), types())
def test_both_branches_fit_what_they_join_to(left: Type, right: Type) -> None:
    joined = join(left, right)
    assert joined == join(right, left)
    assert fits(left, joined)
    assert fits(right, joined)
    assert fits(left, left)
    assert required(optional(left)) == required(left)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("a", TEXT),
        ("", TEXT),
        (1, INT),
        (1, FLOAT),
        (1.5, FLOAT),
        (True, BOOL),
        (None, JSON),
        ([None, {}], JSON),
        (None, Optional(INT)),
        ("yes", YES_NO),
        ([], ListOf(INT)),
        ([{"a": 1}, {}], TABLE),
        ({"name": "a"}, PERSON),
        ({"name": "a", "age": None, "more": 1}, PERSON),
    ],
)
def test_values_that_fit(value: Any, kind: Type) -> None:
    assert mismatch(value, kind) is None


@pytest.mark.parametrize(
    ("value", "kind", "pointer", "message"),
    [
        (1, TEXT, "", "expected text, found int 1"),
        (True, INT, "", "expected int, found bool true"),
        (1.0, INT, "", "expected int, found float 1.0"),
        (True, FLOAT, "", "expected float, found bool true"),
        ("1", FLOAT, "", 'expected float, found text "1"'),
        (0, BOOL, "", "expected bool, found int 0"),
        (None, TEXT, "", "expected text, found null"),
        ("maybe", YES_NO, "", 'expected choice["yes", "no"], found text "maybe"'),
        ([1], YES_NO, "", 'expected choice["yes", "no"], found list [1]'),
        ({}, ListOf(INT), "", "expected list[int], found record {}"),
        ([1, "b"], ListOf(INT), "/1", 'expected int, found text "b"'),
        ([{}, 1], TABLE, "/1", "expected a record, found int 1"),
        ({}, TABLE, "", "expected table, found record {}"),
        ([], PERSON, "", "expected { name: text, age: int? }, found list []"),
        ({"age": 1}, PERSON, "/name", "field `name` is missing"),
        ({"name": "a", "age": "1"}, PERSON, "/age", 'expected int, found text "1"'),
        ([{"a/b~c": 1}], ListOf(Record((("a/b~c", TEXT),))), "/0/a~1b~0c", "expected text, found int 1"),
    ],
)
def test_the_first_place_that_does_not_fit(value: Any, kind: Type, pointer: str, message: str) -> None:
    assert mismatch(value, kind) == (pointer, message)


def test_the_schemas_of_constrained_decoding() -> None:
    assert json_schema(ListOf(Record((("a", TEXT), ("b", Optional(YES_NO)), ("c", TABLE))))) == {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"anyOf": [{"type": "string", "enum": ["yes", "no"]}, {"type": "null"}]},
                "c": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["a", "b", "c"],
            "additionalProperties": False,
        },
    }
    assert [json_schema(kind).get("type") for kind in (INT, FLOAT, BOOL, JSON)] == [
        "integer",
        "number",
        "boolean",
        None,
    ]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("007", TEXT, "007"),
        (" a ", TEXT, " a "),
        ("", TEXT, ""),
        ("", Optional(TEXT), None),
        ("12", INT, 12),
        (" -3 ", INT, -3),
        ("1e3", FLOAT, 1000.0),
        ("3", FLOAT, 3.0),
        ("TRUE", BOOL, True),
        ("0", BOOL, False),
        ("yes", YES_NO, "yes"),
        ('{"name": "a"}', PERSON, {"name": "a"}),
        ("[1, 2]", ListOf(INT), [1, 2]),
        ("null", JSON, None),
        ("plain", JSON, "plain"),
    ],
)
def test_cells(text: str, kind: Type, value: Any) -> None:
    parsed = parse_cell(text, kind)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("", INT, 'expected int, found text ""'),
        ("1.5", INT, 'expected int, found text "1.5"'),
        ("1" * 5000, INT, f'expected int, found text "{"1" * 36}...'),
        ("nan", FLOAT, 'expected float, found text "nan"'),
        ("inf", FLOAT, 'expected float, found text "inf"'),
        ("yes", BOOL, 'expected bool, found text "yes"'),
        ("maybe", YES_NO, 'expected choice["yes", "no"], found text "maybe"'),
        ("[1", ListOf(INT), 'expected list[int], found text "[1"'),
        ("[NaN]", ListOf(FLOAT), 'expected list[float], found text "[NaN]"'),
        ("[" * 100_000, ListOf(JSON), f'expected list[json], found text "{"[" * 36}...'),
        ('["a"]', ListOf(INT), 'expected int, found text "a"'),
    ],
)
def test_cells_that_do_not_fit(text: str, kind: Type, message: str) -> None:
    with pytest.raises(ValueError, match="expected") as raised:
        parse_cell(text, kind)
    assert str(raised.value) == message


def test_what_was_found_is_shown_shortly() -> None:
    assert found(None) == "null"
    assert found("é" * 100) == f'text "{"é" * 36}...'
    assert found({"a": [1]}) == 'record {"a": [1]}'
    assert found({1, 2}).startswith("set ")
    deep: Any = []
    for _ in range(sys.getrecursionlimit() * 20):
        deep = [deep]
    assert found(deep) == "list nested too deeply to be shown"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(json_values, types())
def test_what_fits_a_type_fits_the_wider_one(value: Any, kind: Type) -> None:
    own = type_of(value)
    assert mismatch(value, own) is None
    assert mismatch(value, join(own, kind)) is None
    if mismatch(value, kind) is None:
        assert mismatch(value, optional(kind)) is None
        assert mismatch(json.loads(json.dumps(value)), kind) is None
