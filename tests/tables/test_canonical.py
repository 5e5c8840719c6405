from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.canonical import canonical_bytes, to_json_text

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_text_keeps_the_order_of_keys_and_the_letters() -> None:
    assert to_json_text({"b": [1, None], "a": "ไทย é"}) == '{"b": [1, null], "a": "ไทย é"}'


def test_bytes_sort_keys_at_every_depth() -> None:
    assert canonical_bytes({"b": {"z": 1, "y": "é"}, "a": []}) == '{"a":[],"b":{"y":"é","z":1}}'.encode()


@pytest.mark.parametrize("write", [to_json_text, canonical_bytes])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_are_refused(write, number) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write({"x": [number]})


def test_numbers_that_look_alike_are_told_apart() -> None:
    forms = [canonical_bytes(number) for number in (0, 0.0, -0.0, 1, 1.0, True, "1")]
    assert len(set(forms)) == len(forms)


def test_a_lone_surrogate_has_no_bytes() -> None:
    assert to_json_text("\ud800") == '"\ud800"'
    with pytest.raises(ValueError, match="surrogates"):
        canonical_bytes({"a": "\ud800"})


@given(JSON_VALUES)
def test_both_read_back_as_the_value(value) -> None:
    assert json.loads(to_json_text(value)) == value
    assert json.loads(canonical_bytes(value)) == value


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=5), st.randoms())
def test_bytes_do_not_depend_on_the_order_of_keys(record, random) -> None:
    shuffled = list(record.items())
    random.shuffle(shuffled)
    assert canonical_bytes(dict(shuffled)) == canonical_bytes(record)
