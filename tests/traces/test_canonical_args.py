"""One form for equal arguments."""

from __future__ import annotations

import json

from helix.traces import canonical_args, same_args, schema_hash
from helix.traces.canonical import hide_secrets, is_secret

SCHEMA = {
    "properties": {
        "limit": {"type": "integer", "default": 10},
        "price": {"type": "number"},
        "either": {"type": ["integer", "number"]},
        "places": {"type": "array", "items": {"type": "number"}},
        "deep": {"type": "object", "properties": {"x": {"type": "number"}}},
    }
}


def test_keys_are_sorted_at_every_depth_and_defaults_filled_in():
    found = canonical_args({"z": {"b": 1, "a": [{"d": 1, "c": 2}]}}, SCHEMA)
    assert json.dumps(found) == '{"limit": 10, "z": {"a": [{"c": 2, "d": 1}], "b": 1}}'
    assert canonical_args({"limit": 3}, SCHEMA) == {"limit": 3}


def test_absent_is_not_null():
    assert canonical_args({"a": None}) == {"a": None}
    assert not same_args({"a": None}, {})


def test_one_is_one_point_nought_only_where_the_schema_says_number():
    held = canonical_args({"price": 1, "limit": 1, "either": 1, "places": [1, 2], "deep": {"x": 1, "y": 1}}, SCHEMA)
    assert (
        json.dumps(held) == '{"deep": {"x": 1.0, "y": 1}, "either": 1, "limit": 1, "places": [1.0, 2.0], "price": 1.0}'
    )
    assert same_args(canonical_args({"price": 1}, SCHEMA), canonical_args({"price": 1.0}, SCHEMA))
    assert not same_args({"a": 1}, {"a": 1.0})
    assert not same_args({"a": 1}, {"a": True})
    assert canonical_args({"price": True}, SCHEMA)["price"] is True


def test_a_schema_of_any_shape_does_no_harm():
    for odd in ({}, {"properties": 7}, {"properties": {"a": 3}}, {"type": "object"}):
        assert canonical_args({"a": 1}, odd) == {"a": 1}


def test_a_schema_has_a_name():
    assert schema_hash({"a": 1, "b": 2}) == schema_hash({"b": 2, "a": 1}) != schema_hash({"a": 1})


def test_secrets_are_hashed_with_a_key():
    hidden = hide_secrets({"token": "abc", "id": 1}, ["token", "other"], b"key")
    assert is_secret(hidden["token"])
    assert not is_secret(hidden["id"])
    assert "abc" not in json.dumps(hidden)
    assert hidden == hide_secrets({"token": "abc", "id": 1}, ["token"], b"key")
    assert hidden != hide_secrets({"token": "abc", "id": 1}, ["token"], b"other key")
    # The same value under another name is no equal hash: names cannot be told apart by looking up one.
    assert hidden["token"] != hide_secrets({"t": "abc"}, ["t"], b"key")["t"]
