"""The default values of the scripted engine satisfy their schemas, whatever the schema."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix import types
from helix.executor.engines.schema_value import schema_value

SEEDS = [bytes([number]) * 4 for number in range(40)]


def scalars() -> st.SearchStrategy[types.Type]:
    labels = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True)
    return st.one_of(
        st.sampled_from([types.TEXT, types.INT, types.FLOAT, types.BOOL, types.JSON, types.TABLE]),
        labels.map(lambda names: types.Choice(tuple(names))),
    )


def composites(inner: st.SearchStrategy[types.Type]) -> st.SearchStrategy[types.Type]:
    fields = st.dictionaries(st.text(max_size=6), inner, max_size=4)
    return st.one_of(
        inner.map(types.ListOf),
        inner.map(types.optional),
        fields.map(lambda found: types.Record(tuple(found.items()))),
    )


@given(kind=st.recursive(scalars(), composites, max_leaves=12), seed=st.binary(min_size=1, max_size=16))
def test_every_declared_type_gets_a_value_that_fits(kind: types.Type, seed: bytes) -> None:
    value = schema_value(types.json_schema(kind), seed)
    assert types.mismatch(json.loads(json.dumps(value)), kind) is None
    assert schema_value(types.json_schema(kind), seed) == value


def test_seeds_make_a_difference() -> None:
    schema = types.json_schema(types.Record((("label", types.TEXT), ("score", types.FLOAT))))
    assert len({json.dumps(schema_value(schema, seed)) for seed in SEEDS}) == len(SEEDS)


def test_both_sides_of_an_optional_and_every_label_come_up() -> None:
    optional = types.json_schema(types.optional(types.INT))
    assert {value is None for value in (schema_value(optional, seed) for seed in SEEDS)} == {True, False}
    choice = {"type": "string", "enum": ["a", "b", "c"]}
    assert {schema_value(choice, seed) for seed in SEEDS} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("schema", "low", "high"),
    [
        ({"type": "integer"}, 0, 100),
        ({"type": "integer", "minimum": 7, "maximum": 7}, 7, 7),
        ({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6}, 4, 5),
        ({"type": "integer", "minimum": 500}, 500, 600),
        ({"type": "integer", "maximum": -5}, -105, -5),
        ({"type": "integer", "minimum": 1.5, "maximum": 3.5}, 2, 3),
        ({"type": "number", "minimum": 0, "maximum": 1}, 0, 1),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.1}, 1e-9, 0.0999999),
        ({"type": "number", "minimum": 2.5, "maximum": 2.5}, 2.5, 2.5),
    ],
)
def test_numbers_keep_their_bounds(schema: dict[str, object], low: float, high: float) -> None:
    for seed in SEEDS:
        value = schema_value(schema, seed)
        assert low <= value <= high
        assert schema["type"] == "number" or isinstance(value, int)


def test_multiples() -> None:
    for seed in SEEDS:
        assert schema_value({"type": "integer", "minimum": 1, "maximum": 40, "multipleOf": 8}, seed) % 8 == 0
        cents = schema_value({"type": "number", "minimum": 0, "maximum": 2, "multipleOf": 0.25}, seed) * 4
        assert cents == int(cents)
        assert 0 <= cents <= 8


@pytest.mark.parametrize(
    ("schema", "sizes"),
    [
        ({"type": "array", "items": {"type": "integer"}}, {1, 2, 3}),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 5}, {5, 6, 7}),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 1}, {1}),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 0}, {0}),
        ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False}, {2}),
    ],
)
def test_lists_keep_their_sizes(schema: dict[str, object], sizes: set[int]) -> None:
    assert {len(schema_value(schema, seed)) for seed in SEEDS} == sizes


def test_unique_items() -> None:
    schema = {
        "type": "array",
        "items": {"enum": ["a", "b", "c"]},
        "uniqueItems": True,
        "minItems": 3,
        "maxItems": 3,
    }
    for seed in SEEDS:
        assert sorted(schema_value(schema, seed)) == ["a", "b", "c"]


@pytest.mark.parametrize(("least", "most"), [(0, 4), (30, 40), (0, 0), (11, 11), (3, 12)])
def test_texts_keep_their_length(least: int, most: int) -> None:
    for seed in SEEDS:
        value = schema_value({"type": "string", "minLength": least, "maxLength": most}, seed)
        assert least <= len(value) <= most


def test_references_of_pydantic_and_all_of() -> None:
    schema = {
        "$defs": {
            "Side": {"enum": ["buy", "sell"]},
            "Order": {
                "type": "object",
                "properties": {"side": {"$ref": "#/$defs/Side"}},
                "required": ["side"],
            },
        },
        "allOf": [{"$ref": "#/$defs/Order"}],
        "type": "object",
        "properties": {"size": {"type": ["integer", "null"]}},
        "required": ["size"],
    }
    values = [schema_value(schema, seed) for seed in SEEDS]
    assert {value["side"] for value in values} == {"buy", "sell"}
    assert {type(value["size"]) for value in values} == {int, type(None)}


def test_recursive_schemas_end() -> None:
    tree = {
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                    "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
                },
                "required": ["name", "children", "next"],
            }
        },
        "$ref": "#/$defs/Node",
    }
    for seed in SEEDS[:5]:
        assert set(schema_value(tree, seed)) == {"name", "children", "next"}
    endless = {"type": "object", "properties": {"self": {"$ref": "#"}}, "required": ["self"]}
    assert isinstance(schema_value(endless, b"x"), dict)
    assert isinstance(schema_value({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, b"x"), str)
    assert isinstance(schema_value({"$ref": "#/missing"}, b"x"), str)


def test_required_fields_without_a_schema_are_there() -> None:
    value = schema_value({"type": "object", "required": ["note"], "additionalProperties": {"type": "integer"}}, b"x")
    assert list(value) == ["note"]
    assert isinstance(value["note"], int)
