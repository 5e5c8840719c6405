"""What the Python front end says about mistakes: whole messages, each with the line that it points at."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest

import helix.dsl as hx
from helix.errors import BindError

FILE = Path(__file__).with_name("dsl_errors.txt")


def records() -> list[tuple[str, str, str]]:
    """Each mistake: its title, the workflow function, and the message."""
    found = []
    for block in FILE.read_text(encoding="utf-8").split("# ")[1:]:
        title, _, rest = block.partition("\n")
        code, _, message = rest.partition("----\n")
        found.append((title, code, message))
    return found


def message_of(code: str) -> str:
    """The message of the mistake in a workflow function `w`, which stands in a file of its own."""
    name = "workflow.py"
    text = f"@hx.workflow\n{code}"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"hx": hx, "main": hx.model("m"), "find": find, "__name__": "sample"}
    space |= {"Literal": Literal, "TypedDict": TypedDict}

    def trace() -> Any:
        exec(compile(text, name, "exec"), space)
        return space["w"].syntax

    with pytest.raises(BindError) as caught:
        trace()
    return caught.value.render() + "\n"


@hx.tool
def find(key: str, most: int = 3) -> dict: ...


@pytest.mark.parametrize(("title", "code", "message"), records(), ids=[title for title, *_ in records()])
def test_message(title: str, code: str, message: str, update_golden: bool):
    found = message_of(code)
    if update_golden:
        text = FILE.read_text(encoding="utf-8")
        FILE.write_text(text.replace(f"# {title}\n{code}----\n{message}", f"# {title}\n{code}----\n{found}"), "utf-8")
        return
    if "columns differ" in title:
        found, message = without_columns(found), without_columns(message)
    assert found == message


def without_columns(message: str) -> str:
    return re.sub(r"(?m)^(  --> .*):\d+$|^ +\| *\^+$", r"\1", message)
