"""Plan files: a plan comes back as it was; whatever else a file holds is refused with the entry that is wrong."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix import logical
from helix.errors import PlanError
from helix.expr import Arg, Unary
from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import (
    Apply,
    Body,
    Choose,
    Invoke,
    LogicalPlan,
    Node,
    Parameters,
    Project,
    Render,
    Scan,
    Sink,
    every_node,
)
from helix.plan_json import MAX_NODES, from_json, to_json
from helix.schema import Column
from helix.show import plan_text
from helix.templates.template import Block, Template
from helix.types import BOOL, TEXT

TEXT_OF_ALL = """workflow all(a: text, n: int?, items: list[text] = ["x"])
let tone = "plain"
model main { name: "m", max_tokens: 8, stop: ["."] }
tool find(key: text, most: int = 3) -> json from python "lib:find" effects read, cost 300ms
kind = llm main -> choice["x", "y"] { system "Be {{ tone }}." user "{{ a }} {% for i in items %}{{ i }}{% endfor %}" }
found = find(a) when kind == "x"
views = for item in items { view = llm main(sample: 2, temperature: 0.5) { user "{{ item }} {{ kind }}" }  yield view }
repeat up to 3 until kind2 == "x" { kind2 = llm main(on_overflow: truncate(a)) { user "{{ a }}" } }
keep when len(views) > 0
spread items as one
group by one { total = len(rows) }
sort by total desc
limit 3
output one, total, { total: total } as record
"""
PLAN = bind(parse(TEXT_OF_ALL, "all.helix")).plan
DATA = json.loads(json.dumps(to_json(PLAN)))


def test_a_plan_comes_back_as_it_was() -> None:
    again = from_json(DATA)
    assert again == PLAN
    assert again.id == PLAN.id
    assert to_json(again) == DATA
    assert [str(node.span) for node in every_node(again.sink)] == [str(node.span) for node in every_node(PLAN.sink)]


def test_a_plan_file_holds_no_text_of_the_workflow_but_its_prompts() -> None:
    assert DATA["sources"] == ["all.helix"]
    assert "spread items" not in json.dumps(DATA)
    span = from_json(DATA).sink.span
    assert span is not None
    assert span.source.text is None


def test_equal_operators_of_two_places_keep_their_places() -> None:
    text = 'workflow w(a: text)\nif a == "x" { b = upper(a) } else { c = upper(a) }\noutput b, c\n'
    plan = bind(parse(text, "w.helix")).plan
    choose = next(node for node in every_node(from_json(to_json(plan)).sink) if isinstance(node, Choose))
    then, otherwise = dict(choose.then.results)["b"], dict(choose.otherwise.results)["c"]
    assert then == otherwise
    assert (then.label, otherwise.label) == ("b", "c")
    assert then.span != otherwise.span


# --- what is refused ----------------------------------------------------------------------------------------------


def entry(data: dict[str, Any], operator: str) -> dict[str, Any]:
    """The first entry of an operator."""
    found: dict[str, Any] = next(each for each in data["nodes"] if each["operator"] == operator)
    return found


def put(operator: str, *path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one field of the first entry of an operator."""

    def change(data: dict[str, Any]) -> None:
        place = entry(data, operator)
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


def nest(depth: int) -> Any:
    kind: dict[str, Any] = {"@": "Scalar", "name": "text"}
    for _ in range(depth):
        kind = {"@": "ListOf", "item": kind}
    return kind


CLASSES = (
    "Arg, Binary, Block, Body, Call, Choice, Column, Field, Index, ListExpr, ListOf, Literal, Model, Nothing, "
    "Optional, PromptPart, Record, RecordExpr, Scalar, Slot, Table, Template, Text, Tool, Truncate, Unary"
)
# Every operator there is: one that is added to the plan has to be added to plan files too.
OPERATORS = ", ".join(
    sorted(
        name
        for name, kind in vars(logical).items()
        if isinstance(kind, type) and issubclass(kind, Node) and name not in ("Node", "Relation", "Value")
    )
)
REFUSED: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("no plan", lambda data: data.pop("format"), 'this is not a plan: it has no `"format": "helix-plan"`'),
    (
        "a version of another day",
        lambda data: data.update(version=2),
        "a plan of version int 2; this Helix reads version 1",
    ),
    (
        "a version that is a bool",
        lambda data: data.update(version=True),
        "a plan of version bool true; this Helix reads version 1",
    ),
    (
        "an unknown key",
        lambda data: data.update(code="x"),
        "the plan is malformed at code: extra inputs are not permitted",
    ),
    ("no nodes", lambda data: data.update(nodes=[]), "the last node of a plan is its Sink"),
    (
        "nodes that are no list",
        lambda data: data.update(nodes={}),
        "the plan is malformed at nodes: input should be a valid list",
    ),
    (
        "an id that is none",
        put("Scan", "id", value="../../etc"),
        "the plan is malformed at nodes[0].id: string should match pattern '^[0-9a-f]{16}\\z'",
    ),
    (
        "an unknown operator",
        put("Filter", "operator", value="Filtre"),
        "node N: unknown operator `Filtre`; did you mean `Filter`?",
    ),
    (
        "a class in the place of an operator",
        put("Filter", "operator", value="Column"),
        f"node N: unknown operator `Column`; known: {OPERATORS}",
    ),
    (
        "a class that is not of a plan",
        put("Const", "fields", "type", value={"@": "Popen", "args": ["sh"]}),
        f"node N (Const ID).type: unknown class `Popen`; known: {CLASSES}",
    ),
    (
        "an operator written out in the place of a reference",
        put("Limit", "fields", "rows", value={"@": "Scan", "columns": []}),
        "node N (Limit ID).rows: unknown class `Scan`; did you mean `Scalar`?",
    ),
    (
        "an unknown field",
        put("Limit", "fields", "cuont", value=1),
        "node N (Limit ID): unknown field `cuont`; did you mean `count`?",
    ),
    (
        "a span among the fields",
        put("Limit", "fields", "span", value=None),
        "node N (Limit ID): unknown field `span`; known: count, rows",
    ),
    (
        "a field that is missing",
        lambda data: entry(data, "Limit")["fields"].pop("count"),
        "node N (Limit ID): field `count` is missing",
    ),
    (
        "a value of another type",
        put("Limit", "fields", "count", value="3"),
        'node N (Limit ID).count: expected int, found text "3"',
    ),
    (
        "a bool for an int",
        put("Limit", "fields", "count", value=True),
        "node N (Limit ID).count: expected int, found bool true",
    ),
    (
        "a changed value",
        put("Limit", "fields", "count", value=4),
        "node N (Limit ID) was changed: its content has the id ID",
    ),
    (
        "a changed prompt",
        put("Render", "fields", "template", "segments", 0, "text", value="Be rude. "),
        "node N (Render ID) was changed: its content has the id ID",
    ),
    (
        "a node that stands later",
        put("Limit", "fields", "rows", value={"$": 999}),
        "node N (Limit ID).rows: no node 999 stands before this one",
    ),
    (
        "a node before the first",
        put("Limit", "fields", "rows", value={"$": -1}),
        "node N (Limit ID).rows: no node -1 stands before this one",
    ),
    (
        "a value for a relation",
        put("Limit", "fields", "rows", value={"$": 1}),
        "node N (Limit ID).rows: expected Relation, found Project ID",
    ),
    (
        "effects that are none",
        put("Invoke", "fields", "tool", "effects", value="none"),
        "node N (Invoke ID).tool.effects: expected pure or read or idempotent_write or write or destructive or "
        'unknown, found text "none"',
    ),
    (
        "a span that points nowhere",
        put("Limit", "span", value=[7, 1, 1, 1, 1]),
        "node N (Limit ID): its span points nowhere",
    ),
    (
        "a type nested without end",
        put("Const", "fields", "type", value=nest(1000)),
        "node N (Const ID).type.item.item.item.item.item.item.item.item.ite...: the plan is nested too deeply",
    ),
    (
        "half a character",
        put("Const", "fields", "json", value="\ud800"),
        "node N (Const ID): a text holds half a character (a lone surrogate)",
    ),
    (
        "a node that nobody reads",
        lambda data: data["nodes"].insert(-1, to_json(bind(parse("workflow w(z: text)\noutput z")).plan)["nodes"][0]),
        "node N (Scan ID) is read by nobody",
    ),
]


@pytest.mark.parametrize(("change", "message"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_a_changed_file_is_refused(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    data = copy.deepcopy(DATA)
    change(data)
    with pytest.raises(PlanError) as caught:
        from_json(data)
    found = re.sub(r"^node \d+", "node N", re.sub(r"\b[0-9a-f]{16}\b", "ID", str(caught.value)))
    assert found == message


@pytest.mark.parametrize("data", [None, 3, "x", [], {}, [DATA], {"format": ["helix-plan"]}, {"format": "helix-plan"}])
def test_what_is_no_plan_at_all_is_refused(data: Any) -> None:
    with pytest.raises(PlanError):
        from_json(data)


def test_more_nodes_than_a_plan_may_have_are_refused() -> None:
    data = dict(DATA, nodes=[DATA["nodes"][0]] * (MAX_NODES + 1))
    with pytest.raises(PlanError, match=r"nodes: list should have at most 100000 items"):
        from_json(data)


def test_a_file_that_is_small_and_a_plan_that_is_huge_are_refused() -> None:
    """Each branch holds the one before twice: forty entries, a million million operators."""
    scan = Scan(columns=(Column("a", TEXT),))
    parameters = Parameters(columns=(("a", TEXT),))
    value: Any = Project(source=parameters, field="a", type=TEXT)
    inside = value
    for _ in range(40):
        body = Body(parameters=parameters, results=(("x", value),))
        made = Choose(rows=parameters, condition=inside, captures=(inside,), then=body, otherwise=body)
        value = Project(source=made, field="x", type=TEXT)
    outside = Project(source=scan, field="a", type=TEXT)
    body = Body(parameters=parameters, results=(("x", value),))
    top = Choose(rows=scan, condition=outside, captures=(outside,), then=body, otherwise=body)
    sink = Sink(rows=scan, columns=(("x", Project(source=top, field="x", type=TEXT)),))
    data = to_json(LogicalPlan(name="bomb", sink=sink))
    assert len(data["nodes"]) < 100
    with pytest.raises(PlanError, match=r"holds too many sub-plans$"):
        from_json(data)


def test_an_expression_deeper_than_python_can_walk_is_refused() -> None:
    expr: Any = Arg(index=0)
    for _ in range(230):
        expr = Unary(op="not", operand=expr)
    scan = Scan(columns=(Column("a", BOOL),))
    value = Apply(expr=expr, args=(Project(source=scan, field="a", type=BOOL),), type=BOOL)
    data = to_json(LogicalPlan(name="deep", sink=Sink(rows=scan, columns=(("b", value),))))
    with pytest.raises(PlanError, match=r"an expression has more than 200 levels$"):
        from_json(data)


def test_a_block_that_templates_may_not_hold_is_refused() -> None:
    block = Block(source="{% for i in a.__class__ %}{% endfor %}", names=("a",), inputs=(Arg(index=0),))
    scan = Scan(columns=(Column("a", TEXT),))
    render = Render(template=Template(segments=(block,)), args=(Project(source=scan, field="a", type=TEXT),))
    data = to_json(LogicalPlan(name="block", sink=Sink(rows=scan, columns=(("b", render),))))
    with pytest.raises(PlanError, match=r"templates may not use `__class__`$"):
        from_json(data)


def test_loading_a_plan_looks_up_no_function() -> None:
    """A tool's target is text until a run loads it."""
    assert any(isinstance(node, Invoke) and node.tool.target == "lib:find" for node in every_node(from_json(DATA).sink))
    assert "lib" not in sys.modules


# --- any change at all --------------------------------------------------------------------------------------------

SCRAPS: list[Any] = [
    *(None, True, False, 0, 1, -1, 3, 10**30, 1.5, float("nan"), "", "x", "Scan", "text", "\ud800", "0" * 16),
    *([], [[]], {}, {"$": 0}, {"$": 5}, {"$": "x"}, {"map": []}, {"map": [["a", 1]]}, [0, 1, 1, 1, 1], nest(3)),
    *({"@": "Scalar", "name": "text"}, {"@": "Arg", "index": 0}, {"@": "Column", "name": "z"}, {"@": []}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all parts of a JSON value."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


CHANGES = st.tuples(
    st.sampled_from(list(places(DATA))), st.sampled_from(["set", "drop", "twice", "key"]), st.sampled_from(SCRAPS)
)


@settings(max_examples=300)
@given(st.lists(CHANGES, min_size=1))
def test_a_changed_file_gives_the_same_plan_or_is_refused(changes: list[tuple[tuple[Any, ...], str, Any]]) -> None:
    data = copy.deepcopy(DATA)
    for path, how, scrap in changes[:3]:
        change_at(data, path, how, scrap)
    try:
        plan = from_json(data)
    except PlanError:
        return
    assert plan.id == PLAN.id
    assert plan_text(plan).startswith("Sink ")


def change_at(data: Any, path: tuple[Any, ...], how: str, scrap: Any) -> None:
    """Changes a JSON value in place; a path that an earlier change took away is left alone."""
    try:
        holder = data
        for step in path[:-1]:
            holder = holder[step]
        if how == "drop":
            del holder[path[-1]]
        elif how == "set":
            holder[path[-1]] = copy.deepcopy(scrap)
        elif how == "twice" and isinstance(holder, list):
            holder.insert(path[-1], copy.deepcopy(holder[path[-1]]))
        elif how == "key" and isinstance(holder, dict):
            holder[str(scrap)[:8]] = holder[path[-1]]
    except (KeyError, IndexError, TypeError):
        pass
