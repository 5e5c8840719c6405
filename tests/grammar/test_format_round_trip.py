"""Any syntax tree, printed and read again, is the same tree, and is printed alike the second time."""

from __future__ import annotations

from hypothesis import given
from strategies import workflows

from helix.grammar.format import format_workflow
from helix.grammar.parse import parse
from helix.syntax import Workflow


@given(workflows())
def test_a_printed_workflow_reads_back_as_the_same_tree(workflow: Workflow) -> None:
    text = format_workflow(workflow)
    again = parse(text, "printed.helix")
    assert again == workflow
    assert format_workflow(again) == text
