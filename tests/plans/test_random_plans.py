"""What holds for the plan of any workflow that is right: it binds, keeps its invariants, and is the same plan however
its workflow was laid out, in whatever process, and after a way through a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from wellbound import TestTool, WellBound, rows_for, wellbound

from helix.errors import HelixError
from helix.grammar.bind import bind
from helix.grammar.format import format_workflow
from helix.grammar.parse import parse
from helix.logical import LogicalPlan, every_node
from helix.plan_json import from_json, to_json
from helix.show import plan_text
from helix.summary import plan_summary
from helix.types import JSON, TEXT, ListOf, mismatch
from helix.verify import verify

TOOLS = (
    TestTool(
        name="find",
        declaration='tool find(key: text) -> json from python "lib:find" effects read',
        params=(TEXT,),
        returns=JSON,
    ),
    TestTool(
        name="save",
        declaration='tool save(items: list[text]) -> list[text] from python "lib:save" effects write',
        params=(ListOf(TEXT),),
        returns=ListOf(TEXT),
    ),
)


def plan_of(subject: WellBound, text: str | None = None) -> LogicalPlan:
    """The plan of a workflow that has to be right."""
    modules = {path: parse(module, path) for path, module in subject.modules.items()}
    try:
        return bind(parse(subject.text if text is None else text, "w.helix"), modules=modules).plan
    except HelixError as error:
        raise AssertionError(error.render()) from None


@given(wellbound(tools=TOOLS))
def test_what_is_right_binds_to_a_plan_that_keeps_its_invariants(subject: WellBound) -> None:
    plan = plan_of(subject)
    verify(plan)
    again = from_json(json.loads(json.dumps(to_json(plan))))
    assert again == plan
    assert again.id == plan.id
    assert plan_text(again) == plan_text(plan)
    assert plan_summary(again) == plan_summary(plan)
    assert [str(node.span) for node in every_node(again.sink)] == [str(node.span) for node in every_node(plan.sink)]


@given(wellbound(tools=TOOLS))
def test_the_layout_of_a_workflow_takes_no_part_in_its_plan(subject: WellBound) -> None:
    printed = format_workflow(parse(subject.text))
    assert plan_of(subject, printed).id == plan_of(subject).id


@settings(max_examples=2)
@given(st.lists(wellbound(tools=TOOLS), min_size=12, max_size=12))
def test_two_processes_print_the_same_bytes(subjects: list[WellBound]) -> None:
    given_texts = json.dumps([[subject.text, dict(subject.modules)] for subject in subjects])
    printed = [_printed_by_a_process(given_texts, seed) for seed in ("1", "2")]
    assert printed[0] == printed[1]
    assert printed[0].count(b"Sink ") == len(subjects)
    for subject in subjects:
        assert plan_of(subject).id.encode() in printed[0]


_PRINT = """
import json, sys
from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.plan_json import to_json
from helix.show import plan_text
from helix.summary import plan_summary
for text, modules in json.load(sys.stdin):
    plan = bind(parse(text), modules={path: parse(module, path) for path, module in modules.items()}).plan
    print(plan.id, plan_text(plan), plan_summary(plan), json.dumps(to_json(plan)))
"""


def _printed_by_a_process(texts: str, seed: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
    run = subprocess.run(
        [sys.executable, "-c", _PRINT], input=texts.encode(), capture_output=True, env=environment, check=False
    )
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


@given(st.data())
def test_rows_drawn_for_a_workflow_fit_its_inputs(data: st.DataObject) -> None:
    subject: WellBound = data.draw(wellbound())
    rows: list[dict[str, Any]] = data.draw(rows_for(subject))
    for row in rows:
        for name, kind, defaulted in subject.inputs:
            if name in row:
                assert mismatch(row[name], kind) is None
            else:
                assert defaulted or str(kind).endswith("?")
