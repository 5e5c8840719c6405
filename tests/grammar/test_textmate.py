"""The grammar for editors' colours knows the words of the language."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "helix" / "grammar"
GRAMMAR = json.loads((FOLDER / "helix.tmLanguage.json").read_text("utf-8"))


def parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from parts(each)


def patterns() -> list[str]:
    return [part[key] for part in parts(GRAMMAR) for key in ("match", "begin", "end") if isinstance(part.get(key), str)]


def test_every_expression_is_one() -> None:
    for pattern in patterns():
        re.compile(pattern)


def test_every_include_is_there() -> None:
    named = {part["include"].removeprefix("#") for part in parts(GRAMMAR) if isinstance(part.get("include"), str)}
    assert named == set(GRAMMAR["repository"])


def test_every_word_of_the_language_is_coloured() -> None:
    text = (FOLDER / "helix.lark").read_text("utf-8")
    words = set(re.findall(r"^_?[A-Z]+\.\d: /\(?([a-z_|]+)", text, re.MULTILINE))
    words = {word for group in words for word in group.split("|")}
    assert {"workflow", "until", "asc", "system"} <= words
    coloured = " ".join(patterns())
    missing = {word for word in words if not re.search(rf"\b{word}\b", coloured)}
    assert not missing


def first(line: str) -> str:
    """The colour of the first piece of a line that has one."""
    found: list[tuple[int, int, str]] = []
    for order, include in enumerate(GRAMMAR["patterns"]):
        for part in parts(GRAMMAR["repository"][include["include"].removeprefix("#")]):
            pattern = part.get("match") or part.get("begin")
            match = re.search(pattern, line) if isinstance(pattern, str) else None
            if match is not None:
                name = part.get("name") or part["captures"]["1"]["name"]
                found.append((match.start(), order, name))
    return min(found)[2]


def test_lines_of_a_workflow() -> None:
    assert first("workflow support(ticket: text)") == "keyword.other.workflow.helix"
    assert first('let tone = "plain"') == "keyword.other.declaration.helix"
    assert first('category = llm main -> choice["a"] {') == "variable.other.assignment.helix"
    assert first('  system "Be {{ tone }}."') == "keyword.other.message.helix"
    assert first("repeat up to 3 until review.ok {") == "keyword.control.helix"
    assert first("# a comment") == "comment.line.number-sign.helix"
