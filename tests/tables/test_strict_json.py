from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.executor.tables.strict_json import explain, loads

REFUSED = [
    ('{"a": NaN}', "NaN", 6),
    ('{"a": [1, -Infinity]}', "-Infinity", 10),
    ('{"a": 1, "b": {"a": 1, "a": 2}}', "twice", 23),
    ('[{"x": 1, "\\u0078": 2}]', "twice", 10),
    ('{"a": "\\ud800"}', "surrogate", 6),
    ('{"\\uDFFF": 1}', "surrogate", 1),
    ('{"a": 1e999}', "too large", 6),
    ('{"a": ' + "9" * 5000 + "}", "5,000 digits", 6),
    ('{"a": 1', "expecting ','", 7),
    ('{"a": 1} x', "extra data", 9),
    ('{"a": "b\tc"}', "control character", 8),
    ('{"a": 1}\0', "NUL", 8),
    ("[" * 100_000, "nested", 0),
]


@pytest.mark.parametrize(("text", "message", "position"), REFUSED, ids=[m for _, m, _ in REFUSED])
def test_what_is_refused_is_explained_with_its_place(text, message, position) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the message is checked below, where it also has a place)
        loads(text)
    said, where = explain(text)
    assert message.lower() in said.lower()
    assert where == position


@pytest.mark.parametrize(
    "text",
    ['{"a": {"k": 1}, "b": {"k": 1}}', '["\\ud83d\\ude00"]', '"\\\\ud800"', "[1e308, -0.0]", '{"a": "NaN"}', "9" * 400],
)
def test_what_only_looks_wrong_is_read(text) -> None:
    assert loads(text) == json.loads(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    st.booleans(),
)
def test_sound_json_is_read_as_the_standard_library_reads_it(value, ascii_only) -> None:
    assert loads(json.dumps(value, ensure_ascii=ascii_only)) == value
