"""What `helix fmt` makes of workflows, one fixture for each rule of the grammar."""

from __future__ import annotations

from pathlib import Path

import golden
import pytest

from helix.grammar.format import format_workflow
from helix.grammar.parse import parse

FOLDER = Path(__file__).with_name("fixtures")


def _formatted(text: str) -> str:
    return format_workflow(parse(text, "fixture.helix"))


@pytest.mark.parametrize(("path", "title"), golden.cases(FOLDER), ids=lambda value: getattr(value, "stem", value))
def test_a_workflow_is_printed_in_one_style(path: Path, title: str, update_golden: bool) -> None:
    if update_golden:
        golden.update(path, _formatted)
    record = golden.record(path, title)
    assert _formatted(record.before) == record.after
    before, after = parse(record.before), parse(record.after)
    assert after == before
    assert [comment.text for comment in after.comments] == [comment.text for comment in before.comments]
    assert _formatted(record.after) == record.after
