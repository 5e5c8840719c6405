"""Plans to segments and levels: what is placed where, and that values, constants and prompts reach every level."""

from __future__ import annotations

from typing import Any

import pytest
from running import Ran, run, user_text

import helix
from helix.api import check
from helix.executor.compile import Compiler
from helix.executor.frame import Dataflow
from helix.executor.operators import Given
from helix.executor.places import NOWHERE
from helix.executor.program import Segment
from helix.logical import GroupReduce, Limit, Sink, Sort


def segments(text: str) -> list[Segment]:
    plan = check(helix.loads(text)).plan
    return Compiler(Dataflow(), {}, lambda node, index, *rest: Given(index, NOWHERE)).compile(plan)


def shape(text: str) -> list[tuple[int, type]]:
    """For each segment how many levels it has and what ends it."""
    return [(len(segment.levels), type(segment.boundary)) for segment in segments(text)]


HEAD = "workflow t(a: text, n: int, xs: list[text])\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("output a", [(1, Sink)]),
        ("keep when n > 1\nkeep when n > 2\noutput a", [(1, Sink)]),
        ("spread xs as x\noutput x", [(2, Sink)]),
        ("spread xs as x\nkeep when n > 1\nspread xs as y\noutput y", [(3, Sink)]),
        ("limit 3\noutput a", [(1, Limit), (1, Sink)]),
        ("sort by n\nlimit 3\noutput a", [(1, Sort), (1, Limit), (1, Sink)]),
        ("spread xs as x\nsort by x\nspread xs as y\noutput y", [(2, Sort), (2, Sink)]),
        ("group by a { c = len(rows) }\noutput a, c", [(1, GroupReduce), (1, Sink)]),
        ("limit 9\nlimit 3\nlimit 5\noutput a", [(1, Limit), (1, Limit), (1, Limit), (1, Sink)]),
    ],
)
def test_relations_cut_a_plan_into_segments_and_levels(body: str, expected: list[tuple[int, type]]) -> None:
    assert shape(HEAD + body) == expected


def test_only_what_is_read_later_crosses_a_boundary() -> None:
    text = HEAD + 'used = llm { user "{{ a }}" }\nother = llm { user "{{ n }}" }\nlimit 3\noutput used'
    first, last = segments(text)
    assert len(first.exports) == 1
    assert set(last.levels[0].program.imports) == set(first.exports)


def test_slots_that_leave_are_kept_and_others_are_not() -> None:
    text = HEAD + 'x = llm { user "{{ a }}" }\ny = llm { user "{{ x }}" }\noutput y'
    (only,) = segments(text)
    level = only.levels[0]
    assert set(only.exports.values()) <= level.kept
    assert len(level.kept) == 2
    assert len(level.program.operators) > 4


def rows_of(text: str, *rows: dict[str, Any], **options: Any) -> Ran:
    ran = run(text, list(rows), reply=lambda request: user_text(request).upper(), **options)
    assert [row["_error"] for row in ran.rows] == [None] * len(ran.rows)
    return ran


ROW = {"a": "v", "n": 2, "xs": ["p", "q"]}


def test_values_cross_several_levels() -> None:
    text = HEAD + (
        'top = llm { user "top {{ a }}" }\nspread xs as x\nspread xs as y\nspread xs as z\noutput top, x, y, z, n'
    )
    ran = rows_of(text, ROW)
    assert len(ran.rows) == 8
    assert [(row["x"], row["y"], row["z"]) for row in ran.rows] == [(x, y, z) for x in "pq" for y in "pq" for z in "pq"]
    assert set(ran.column("top")) == {"TOP V"}
    assert set(ran.column("n")) == {2}
    assert ran.engine.calls == 1


def test_values_cross_several_segments_that_do_not_read_them() -> None:
    text = HEAD + (
        'top = llm { user "top {{ a }}" }\nsort by n desc\nlimit 5\nspread xs as x\nsort by x desc\n'
        'low = llm { user "{{ top }} {{ x }}" }\nlimit 9\noutput a, low'
    )
    ran = rows_of(text, ROW, ROW | {"a": "w", "n": 3})
    assert ran.column("low") == ["TOP W Q", "TOP V Q", "TOP W P", "TOP V P"]


def test_constants_are_read_on_every_level() -> None:
    text = HEAD + (
        'let words = ["r", "s"]\nlet tone = "plain"\nspread words as w\nspread words as u\n'
        'x = llm { user "{{ tone }} {{ w }}{{ u }} {{ words }}" }\nsort by tone\nlimit 4\n'
        "output w, u, tone, x, words, words[0] as first"
    )
    ran = rows_of(text, ROW)
    assert ran.column("x") == [f'PLAIN {w}{u} ["R","S"]'.upper() for w in "rs" for u in "rs"]
    assert ran.rows[3] == {
        "_row": 0,
        "w": "s",
        "u": "s",
        "tone": "plain",
        "x": 'PLAIN SS ["R","S"]',
        "words": ["r", "s"],
        "first": "r",
        "_error": None,
    }


def test_static_prompts_run_on_the_level_where_they_stand() -> None:
    text = HEAD + (
        'one = llm { user "static" }\nspread xs as x\ntwo = llm { user "static" }\n'
        'sort by n\nthree = llm { user "static" }\noutput one, two, three'
    )
    ran = rows_of(text, ROW, ROW, plain=True)
    assert len(ran.rows) == 4
    assert ran.engine.calls == 1
    assert ran.report.merged == 2 + 4 + 4 - 1
    assert rows_of(text, ROW, ROW, merge=False, plain=True).engine.calls == 10


def test_constants_and_static_prompts_stand_after_a_group() -> None:
    text = HEAD + (
        'let unit = "pieces"\ngroup by a {\n  c = len(rows)\n  first = rows[0].n\n'
        '  say = llm { user "{{ c }} {{ unit }}" }\n  same = llm { user "static" }\n}\n'
        'after = llm { user "static" }\noutput a, c, first, say, same, after, unit'
    )
    ran = rows_of(text, ROW, ROW | {"a": "w"}, ROW | {"n": 7})
    assert ran.rows[0] == {
        "_row": 0,
        "a": "v",
        "c": 2,
        "first": 2,
        "say": "2 PIECES",
        "same": "STATIC",
        "after": "STATIC",
        "unit": "pieces",
        "_error": None,
    }
    assert [row["_row"] for row in ran.rows] == [0, 1]


def test_a_constant_stays_the_same_for_all_rows() -> None:
    text = HEAD + "let words = [3, 1, 2]\noutput sort(words) as s, reverse(words) as r, words"
    for row in rows_of(text, ROW, ROW, ROW).rows:
        assert (row["s"], row["r"], row["words"]) == ([1, 2, 3], [2, 1, 3], [3, 1, 2])


def test_inputs_are_read_before_and_after_everything() -> None:
    text = HEAD + "spread xs as x\nlimit 3\nspread xs as y\noutput a, n, x, y"
    ran = rows_of(text, ROW, ROW | {"a": "w"})
    assert [(row["_row"], row["x"], row["y"]) for row in ran.rows] == [
        (0, "p", "p"),
        (0, "p", "q"),
        (0, "q", "p"),
        (0, "q", "q"),
        (1, "p", "p"),
        (1, "p", "q"),
    ]


def test_two_projections_of_one_output_share_its_slot() -> None:
    """As a rule may make them: the same output read under two types."""
    from dataclasses import replace

    from helix.logical import LogicalPlan, Project
    from helix.types import JSON

    plan = check(helix.loads(HEAD + 'if n > 1 { x = a } else { x = "b" }\noutput x, a')).plan
    (_, x), (_, a) = plan.sink.columns
    assert isinstance(x, Project)
    assert isinstance(a, Project)
    columns = (("x", x), ("y", replace(x, type=JSON)), ("a", a), ("b", replace(a, type=JSON)))
    wide = LogicalPlan(name="t", sink=replace(plan.sink, columns=columns))
    (segment,) = Compiler(Dataflow(), {}, lambda *_: Given(0, NOWHERE)).compile(wide)
    assert segment.exports["x"] == segment.exports["y"]
    assert segment.exports["a"] == segment.exports["b"]
