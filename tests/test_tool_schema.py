"""The signature of a tool as JSON Schema, and arguments by name as a tool takes them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helix.schema import Column
from helix.services import Tool
from helix.tools.schema import arguments_in_order, description, function_definition, parameters_schema, result_schema
from helix.types import BOOL, INT, JSON, TEXT, Choice, ListOf, Record, optional

TOOL = Tool(
    name="parts/shop.helix#find",
    origin="python",
    target="m:f",
    params=(
        Column("key", TEXT),
        Column("most", INT, 10),
        Column("kind", optional(Choice(("a", "b")))),
        Column("tags", optional(ListOf(TEXT)), None),
        Column("more", JSON, {"x": 1}),
    ),
    returns=Record((("ok", BOOL),)),
)


def find(key: str) -> bool:
    """Finds things.

    Slowly.
    """
    return bool(key)


def test_parameters_and_result() -> None:
    assert parameters_schema(TOOL) == {
        "type": "object",
        "properties": {
            "key": {"type": "string"},
            "most": {"type": "integer", "default": 10},
            "kind": {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
            "more": {"default": {"x": 1}},
        },
        "required": ["key"],
        "additionalProperties": False,
    }
    assert list(parameters_schema(TOOL)["properties"]) == ["key", "most", "kind", "tags", "more"]
    assert result_schema(TOOL)["properties"] == {"ok": {"type": "boolean"}}


def test_descriptions() -> None:
    from dataclasses import replace

    assert description(TOOL) == ""
    assert description(TOOL, find) == "Finds things.\n\nSlowly."
    assert description(replace(TOOL, description="Declared."), find) == "Declared."
    assert function_definition(TOOL, find) == {
        "name": "find",
        "description": "Finds things.\n\nSlowly.",
        "parameters": parameters_schema(TOOL),
    }
    assert "description" not in function_definition(TOOL)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"key": "k"}, ["k", 10, None, None, {"x": 1}]),
        ({"more": [1], "most": 3, "key": "k", "kind": "a"}, ["k", 3, "a", None, [1]]),
        ({"key": "k", "most": None, "tags": ["t"]}, ["k", 10, None, ["t"], {"x": 1}]),
    ],
)
def test_arguments(given: dict[str, Any], expected: list[Any]) -> None:
    assert arguments_in_order(TOOL, given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "find needs `key`, a text"),
        (
            {"key": "k", "mots": 1},
            "find has no parameter `mots`; did you mean `most`? parameters: key, kind, more, most",
        ),
        ({"key": 3}, "`key` of find does not fit: expected text, found int 3"),
        ({"key": None}, "`key` of find does not fit: expected text, found null"),
        ({"key": "k", "tags": ["a", 1]}, "`tags` of find does not fit at `/1`: expected text, found int 1"),
        ({"key": "k", "kind": "c"}, '`kind` of find does not fit: expected choice["a", "b"], found text "c"'),
    ],
)
def test_arguments_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        arguments_in_order(TOOL, given)
