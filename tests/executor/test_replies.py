"""Replies to values (contract 16): strict, nothing guessed, each fault under its kind with the raw text kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.errors import OutputError
from helix.replies import completed, correction, parse_reply
from helix.types import BOOL, FLOAT, INT, JSON, TABLE, TEXT, Choice, ListOf, Optional, Record, Type, mismatch

LABELS = Choice(("billing", "bug", "other"))
REVIEW = Record((("ok", BOOL), ("note", TEXT)))
OPEN = Record((("ok", BOOL), ("note", Optional(TEXT)), ("more", JSON)))


def fault(text: str, kind: Type, finish: Any = "stop", **options: bool) -> OutputError:
    with pytest.raises(OutputError) as caught:
        parse_reply(text, kind, finish, **options)
    assert caught.value.text == text
    return caught.value


@pytest.mark.parametrize("text", ["", " padded \n", "null", '"quoted"', "```\nfenced\n```", "ไทย 🦉"])
def test_a_text_is_taken_as_it_is(text: str) -> None:
    assert parse_reply(text, TEXT) == text
    assert parse_reply(text, TEXT, "length") == text


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("bug", LABELS, "bug"),
        (" bug\n", LABELS, "bug"),
        ('"bug"', LABELS, "bug"),
        ("```\nbug\n```", LABELS, "bug"),
        ('```json\n"bug"\n```', LABELS, "bug"),
        ("true", Choice(("true", "false")), "true"),
        ("1", Choice(("1", "2")), "1"),
        (" a", Choice((" a", "b")), " a"),
        ('"null"', Choice(("null",)), "null"),
        ("null", Optional(LABELS), None),
        ("42", INT, 42),
        ("-7\n", INT, -7),
        ("0.5", FLOAT, 0.5),
        ("3", FLOAT, 3),
        ("true", BOOL, True),
        ("null", Optional(INT), None),
        ("null", JSON, None),
        ("null", Optional(TEXT), None),
        ("", Optional(TEXT), None),
        ("a text", Optional(TEXT), "a text"),
        ('{"ok": true, "note": "n"}', REVIEW, {"ok": True, "note": "n"}),
        ('```json\n{"ok": true, "note": "n"}\n```', REVIEW, {"ok": True, "note": "n"}),
        ('```\r\n{"ok": true, "note": "n"}\r\n```', REVIEW, {"ok": True, "note": "n"}),
        ('Sure:\n{"ok": true, "note": "n"}\nAnything else?', REVIEW, {"ok": True, "note": "n"}),
        ('See [1] and {x}: {"ok": true, "note": "n"}', REVIEW, {"ok": True, "note": "n"}),
        ('```python\nprint(1)\n```\n```json\n{"ok": true, "note": "n"}\n```', REVIEW, {"ok": True, "note": "n"}),
        ('```json\n{"ok": true, "note": "n"}', REVIEW, {"ok": True, "note": "n"}),
        ('{"ok": true, "note": "```x```"}', REVIEW, {"ok": True, "note": "```x```"}),
        ('{"note": "n", "ok": true}', REVIEW, {"ok": True, "note": "n"}),
        ('{"ok": true, "note": "n", "extra": 1}', REVIEW, {"ok": True, "note": "n"}),
        ('{"ok": true}', OPEN, {"ok": True, "note": None, "more": None}),
        ("The list: [1, 2]", ListOf(INT), [1, 2]),
        ('{"a": 1} and [1, 2]', ListOf(INT), [1, 2]),
        ('here: [{"a": 1}]', TABLE, [{"a": 1}]),
        ('so: {"a": [1]}', JSON, {"a": [1]}),
        ('[{"ok": true}]', ListOf(OPEN), [{"ok": True, "note": None, "more": None}]),
    ],
)
def test_a_good_reply_is_its_value(text: str, kind: Type, value: Any) -> None:
    parsed = parse_reply(text, kind)
    assert parsed == value
    assert mismatch(parsed, kind) is None
    if isinstance(value, dict):
        assert list(parsed) == list(value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("The answer is billing", LABELS, "the reply is not one of the labels"),
        ("Billing", LABELS, "the reply is not one of the labels"),
        ("bug, billing", LABELS, "the reply is not one of the labels"),
        ('"refund"', LABELS, 'the reply does not fit at `/`: expected choice["billing", "bug", "other"]'),
        ("The answer is 42", INT, "the reply is not an int"),
        ("4.5", INT, "the reply does not fit at `/`: expected int, found float 4.5"),
        ("4.0", INT, "the reply does not fit at `/`: expected int, found float 4.0"),
        ("true", INT, "the reply does not fit at `/`: expected int, found bool true"),
        ('"42"', INT, 'the reply does not fit at `/`: expected int, found text "42"'),
        ("yes", BOOL, "the reply is not true or false"),
        ("1", BOOL, "the reply does not fit at `/`: expected bool, found int 1"),
        ("NaN", FLOAT, "the reply is not a number: NaN is not JSON"),
        ("Infinity", FLOAT, "the reply is not a number: Infinity is not JSON"),
        ("1e999", FLOAT, "the reply is not a number: 1e999 is too large"),
        ('{"x": -1e999}', JSON, "the reply is not JSON: -1e999 is too large"),
        ("{'ok': true}", REVIEW, "the reply is not JSON of the type"),
        ('{"ok": true}', REVIEW, "the reply does not fit at `/note`: field `note` is missing"),
        ('{"ok": "yes", "note": "n"}', REVIEW, 'the reply does not fit at `/ok`: expected bool, found text "yes"'),
        ('{"ok": true, "note": null}', REVIEW, "the reply does not fit at `/note`: expected text, found null"),
        ('[1, "2"]', ListOf(INT), 'the reply does not fit at `/1`: expected int, found text "2"'),
        ('{"a/b": 1}', Record((("a/b", TEXT),)), "the reply does not fit at `/a~1b`"),
        ('{"ok": true, "note": "n"', REVIEW, "the reply is not JSON of the type"),
        ("[1, 2", ListOf(INT), "the reply is not JSON of the type"),
        ("[" * 100_000, JSON, "nested too deeply"),
        ("x " + "[" * 100_000, JSON, "nested too deeply"),
        ("x " + '{"a":' * 100_000, REVIEW, "nested too deeply"),
        ("9" * 5000, INT, "the reply is not an int"),
        ("null", LABELS, "the reply does not fit at `/`"),
    ],
)
def test_a_reply_that_does_not_fit_is_a_schema_error_at_its_place(text: str, kind: Type, message: str) -> None:
    error = fault(text, kind)
    assert error.kind == "schema"
    assert message in error.message


@pytest.mark.parametrize("text", ["", "   ", "\n\n"])
@pytest.mark.parametrize("kind", [LABELS, INT, REVIEW, JSON, Optional(INT), ListOf(TEXT)])
def test_an_empty_reply_is_empty(text: str, kind: Type) -> None:
    assert fault(text, kind).kind == "empty"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"ok": true, "no', REVIEW),
        ("[1, 2", ListOf(INT)),
        ("bil", LABELS),
        ("go", Choice(("go", "good"))),
        ("12", INT),
        ("1.5", FLOAT),
        ("7", JSON),
        ("", REVIEW),
        ('{"ok": true}', REVIEW),
        ("Let me think about", BOOL),
    ],
)
def test_a_reply_that_was_cut_off_is_truncated(text: str, kind: Type) -> None:
    error = fault(text, kind, "length")
    assert error.kind == "truncated"
    assert error.message.endswith("raise max_tokens")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ('{"ok": true, "note": "n"}', REVIEW, {"ok": True, "note": "n"}),
        ("bug", LABELS, "bug"),
        ("good", Choice(("go", "good")), "good"),
        ("true", BOOL, True),
        ("[1]", ListOf(INT), [1]),
    ],
)
def test_a_whole_reply_at_the_limit_of_tokens_is_good(text: str, kind: Type, value: Any) -> None:
    assert parse_reply(text, kind, "length") == value


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ('"42"', INT, 42),
        ('"1,234"', INT, 1234),
        ("1,234", INT, 1234),
        ("3.0", INT, 3),
        ('"0.5"', FLOAT, 0.5),
        ('"yes"', BOOL, True),
        ("Yes", BOOL, True),
        ("no", BOOL, False),
        ('""', Optional(INT), None),
        ('{"ok": "true", "note": 7}', REVIEW, {"ok": True, "note": "7"}),
        ('["1", 2]', ListOf(INT), [1, 2]),
        ('{"label": 1}', Record((("label", Choice(("1", "2"))),)), {"label": "1"}),
    ],
)
def test_coerce_turns_near_scalars_into_the_declared_type(text: str, kind: Type, value: Any) -> None:
    assert parse_reply(text, kind, coerce=True) == value
    fault(text, kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('"about 42"', INT),
        ("3.5", INT),
        ("maybe", BOOL),
        ('"nan"', FLOAT),
        ('"1e999"', FLOAT),
        ("Bug", LABELS),
        ("1", ListOf(INT)),
    ],
)
def test_coerce_guesses_nothing(text: str, kind: Type) -> None:
    assert fault(text, kind, coerce=True).kind == "schema"


def test_a_reply_of_brackets_takes_no_long_time() -> None:
    error = fault("x" + "[ " * 20_000 + "{", ListOf(INT))
    assert error.kind == "schema"


def test_a_correction_says_what_was_wrong_and_what_is_wanted() -> None:
    error = fault('{"ok": 1, "note": "n"}', REVIEW)
    text = correction(error, REVIEW)
    assert "expected bool, found int 1" in text
    assert "JSON of the type { ok: bool, note: text } only" in text
    assert 'one of the labels "billing", "bug", "other"' in correction(fault("x", LABELS), LABELS)
    assert "an int only" in correction(fault("x", Optional(INT)), Optional(INT))


def test_completed_orders_fields_and_fills_what_may_be_absent() -> None:
    value = completed({"more": 1, "ok": True, "other": 2}, OPEN)
    assert list(value.items()) == [("ok", True), ("note", None), ("more", 1)]
    assert completed("not a record", OPEN) == "not a record"
    assert completed([{"ok": True}], ListOf(REVIEW)) == [{"ok": True}]


KINDS = st.recursive(
    st.sampled_from([TEXT, INT, FLOAT, BOOL, JSON, LABELS, Optional(INT), Optional(TEXT)]),
    lambda inner: st.one_of(
        inner.map(ListOf),
        st.lists(st.tuples(st.sampled_from("abc"), inner), max_size=3, unique_by=lambda pair: pair[0]).map(
            lambda fields: Record(tuple(fields))
        ),
    ),
    max_leaves=4,
)


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsnil`j \n\\aé', max_size=40), KINDS, st.booleans(), st.booleans())
def test_whatever_the_reply_it_is_a_fitting_value_or_an_output_error(
    text: str, kind: Type, cut: bool, coerce: bool
) -> None:
    failed: OutputError | None = None
    value: Any = None
    try:
        value = parse_reply(text, kind, "length" if cut else "stop", coerce=coerce)
    except OutputError as error:
        failed = error
    if failed is not None:
        assert failed.kind in ("schema", "truncated", "empty")
        assert failed.text == text
        return
    assert mismatch(value, kind) is None
    # What passed once passes again, whoever reads the stored text.
    assert parse_reply(text, kind, coerce=coerce) == value
