"""What tests of trees, tries and costs share: plans from workflow text."""

from __future__ import annotations

from pathlib import Path

from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import LogicalPlan


def plan_of(text: str, folder: Path | None = None) -> LogicalPlan:
    """The bound plan of a workflow's text, as it is before any rule."""
    return bind(parse(text.strip() + "\n"), folder=folder).plan
