"""The plans of workflows, one for each kind of statement, as plan text; and how plan text keeps to a width."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import records

import helix.show
from helix.errors import cell_width
from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import LogicalPlan
from helix.plan_json import from_json, to_json
from helix.show import plan_text
from helix.verify import verify

CASES = records.read(*sorted(Path(__file__).parent.glob("*.txt")))
_FILE = re.compile(r"^# file: (.*)\n", re.MULTILINE)


def plan_of(record: records.Record) -> LogicalPlan:
    """The plan of a workflow, with the sub-workflows that stand below it."""
    main, *others = _FILE.split(record.given)
    modules = {name: parse(text, name) for name, text in zip(others[::2], others[1::2], strict=True)}
    return bind(parse(main, "w.helix"), modules=modules).plan


@pytest.mark.parametrize("record", CASES, ids=records.identifiers(CASES))
def test_plan(record: records.Record, update_golden: bool) -> None:
    plan = plan_of(record)
    verify(plan)
    text = plan_text(plan)
    if update_golden:
        records.update(record, text)
    else:
        assert text == record.expected
    assert plan_text(from_json(to_json(plan))) == text


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize("record", CASES, ids=records.identifiers(CASES))
def test_no_line_is_wider_than_the_terminal(record: records.Record, width: int) -> None:
    plan = plan_of(record)
    narrow = plan_text(plan, width=width)
    assert all(sum(map(cell_width, line)) <= width for line in narrow.splitlines())
    whole = plan_text(plan)
    if "..." not in narrow:
        # Nothing was left out: only white space changed.
        assert narrow.split() == whole.split()


def test_the_example_of_the_documentation() -> None:
    text = """workflow doc(ticket: text, urgent: bool = false)
model main { name: "SmolLM2-135M" }
category = llm main -> choice["billing", "bug"] { user "{{ ticket }}" }
keep when urgent
reply = llm main { user "Answer: {{ ticket }}" }
repeat up to 3 until review.ok {
  review = llm main -> { ok: bool, note: text } { user "Judge: {{ reply }}" }
  reply = llm main { user "Improve {{ reply }} by {{ review.note }}" }
}
output ticket, category, reply, review.note as note
"""
    documented = textwrap.dedent(str(helix.show.__doc__).split("\n\n")[2]) + "\n"
    assert plan_text(bind(parse(text)).plan) == documented


def test_a_shortened_text_keeps_its_values_in_sight() -> None:
    prompt = f"{'x' * 300} {{{{ a }}}} {'y' * 300} {{{{ b }}}}"
    text = f'workflow w(a: text, b: text)\nc = llm {{ user "{prompt}" }}\noutput c\n'
    shown = plan_text(bind(parse(text)).plan, width=60).splitlines()[2]
    assert shown == '    user "xxxxxxxxxxxxxxxxxx...{a} yyyyyyyyyyyyyyyyy...{b}"'


def test_colours_change_nothing_else() -> None:
    for record in CASES:
        plan = plan_of(record)
        coloured = plan_text(plan, color=True)
        assert "\x1b[36mSink\x1b[0m" in coloured
        assert re.sub(r"\x1b\[\d*m", "", coloured) == plan_text(plan)
