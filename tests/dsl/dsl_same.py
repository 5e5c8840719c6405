"""What the tests of the Python front end share: a workflow compared to its text form."""

from __future__ import annotations

from typing import Any

import pytest

from helix.errors import BindError
from helix.grammar.bind import bind
from helix.grammar.format import format_workflow
from helix.grammar.parse import parse


def same(workflow: Any, text: str, *, binds: bool = True) -> None:
    """Asserts that a workflow has the tree of the text, prints as text that reads back, and binds to the same plan."""
    expected = parse(text)
    assert workflow.syntax == expected, f"\n{format_workflow(workflow.syntax)}\nexpected\n{format_workflow(expected)}"
    assert parse(format_workflow(workflow.syntax)) == expected
    if binds:
        assert bind(workflow.syntax).plan == bind(expected).plan


def steps(workflow: Any) -> str:
    """The workflow as text, from its first step on."""
    text = format_workflow(workflow.syntax)
    return text.partition("\n\n")[2].strip()


def failure(workflow: Any) -> BindError:
    """The mistake that tracing a workflow finds."""
    with pytest.raises(BindError) as caught:
        _ = workflow.syntax
    return caught.value
