"""The types that binding finds are those of the values that a run gives."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from running import run
from wellbound import WellBound, rows_for, wellbound

from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.types import mismatch


@settings(max_examples=40)
@given(st.data())
def test_each_value_of_a_result_has_the_type_of_its_column(data: st.DataObject) -> None:
    """Whatever the replies: a step that fails fails its row, and no other value is of a wrong type."""
    subject: WellBound = data.draw(wellbound(uses=False))
    plan = bind(parse(subject.text)).plan
    for row in run(subject.text, data.draw(rows_for(subject))).rows:
        for name, value in plan.sink.columns:
            wrong = None if row[name] is None and row["_error"] else mismatch(row[name], value.type)
            assert wrong is None, f"{name}: {value.type}: {wrong}\n{subject.text}"
