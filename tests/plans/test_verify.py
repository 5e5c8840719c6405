"""The invariants of a plan: each is broken once by hand, and the message names the operator and what is wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from helix.errors import PlanError
from helix.expr import Arg, Binary, Call, Field, Name, Unary
from helix.logical import (
    Apply,
    Body,
    Choose,
    Const,
    Filter,
    Generate,
    GroupReduce,
    Invoke,
    Limit,
    LogicalPlan,
    Map,
    Model,
    Node,
    Parameters,
    Project,
    PromptPart,
    Relation,
    Render,
    Repeat,
    Scan,
    Sink,
    Tool,
    Unnest,
    Value,
)
from helix.schema import Column
from helix.templates.template import Slot, Template, Text
from helix.types import BOOL, INT, JSON, TEXT, ListOf, Optional, Type
from helix.verify import verify

SCAN = Scan(columns=(Column("a", TEXT), Column("n", INT), Column("items", ListOf(TEXT))))
A = Project(source=SCAN, field="a", type=TEXT)
N = Project(source=SCAN, field="n", type=INT)
ITEMS = Project(source=SCAN, field="items", type=ListOf(TEXT))
HELLO = Render(template=Template(segments=(Text(text="hello"),)), args=())
INNER = Parameters(columns=(("x", TEXT),))
X = Project(source=INNER, field="x", type=TEXT)
TOOL = Tool(name="find", origin="python", target="lib:find", params=(Column("key", TEXT),), returns=JSON)


def plan(value: Value, rows: Relation = SCAN, name: str = "out") -> LogicalPlan:
    """A plan with one column."""
    return LogicalPlan(name="p", sink=Sink(rows=rows, columns=((name, value),)))


def llm(step: str = "ask", rows: Relation = SCAN, content: Value = HELLO, **settings: Any) -> Generate:
    """A call with one message."""
    defaults: dict[str, Any] = {"type": TEXT, "returns": TEXT, "model": Model()}
    return Generate(
        rows=rows, step=step, prompt=(PromptPart(role="user", content=(content,)),), **(defaults | settings)
    )


def apply(expr: Any, *args: Value, type: Type = TEXT) -> Apply:
    return Apply(expr=expr, args=args, type=type)


def loop(over: Value = ITEMS, captures: tuple[Value, ...] = (), body: Body | None = None, **settings: Any) -> Map:
    """A loop that gives its items."""
    body = body or Body(parameters=INNER, results=(("yield", X),))
    defaults: dict[str, Any] = {"type": ListOf(TEXT), "rows": SCAN, "step": "each"}
    return Map(over=over, captures=captures, body=body, **(defaults | settings))


def choose(**settings: Any) -> Project:
    """The output `y` of a branch."""
    arm = Body(parameters=INNER, results=(("y", X),))
    defaults: dict[str, Any] = {"rows": SCAN, "condition": A, "captures": (A,), "then": arm, "otherwise": arm}
    return Project(source=Choose(**(defaults | settings)), field="y", type=TEXT)


def repeat(**settings: Any) -> Project:
    """The output `x` of a loop that carries it round."""
    body = Body(parameters=INNER, results=(("x", X),))
    defaults: dict[str, Any] = {"rows": SCAN, "times": 2, "carried": (("x", A),), "captures": (), "body": body}
    return Project(source=Repeat(**(defaults | settings)), field="x", type=TEXT)


GROUP = GroupReduce(rows=SCAN, keys=(("a", A),), columns=(("n", N),))
KEY = Project(source=GROUP, field="a", type=TEXT)
OTHER = Scan(columns=(Column("b", TEXT),))
ROUND = Body(parameters=Parameters(columns=(("x", INT),)), results=(("x", Const(type=TEXT, json='"s"')),))

RIGHT: list[tuple[str, LogicalPlan]] = [
    ("a call", plan(llm())),
    ("a loop", plan(loop())),
    (
        "a loop with a call that nobody reads",
        plan(loop(body=Body(parameters=INNER, results=(("yield", X), ("also?0", X))))),
    ),
    ("a branch", plan(choose())),
    ("a bounded loop", plan(repeat())),
    ("a group", plan(KEY, GROUP)),
    ("a call over fewer rows", plan(llm(rows=Limit(rows=SCAN, count=3)), Limit(rows=SCAN, count=3))),
    ("a call over more rows than its reader", plan(llm(), Limit(rows=SCAN, count=3))),
    (
        "a call before a group that nobody reads",
        replace(plan(KEY, GROUP), sink=replace(plan(KEY, GROUP).sink, also=(llm(),))),
    ),
]

BROKEN: list[tuple[str, LogicalPlan, str]] = [
    ("a column that is not there", plan(Project(source=SCAN, field="b", type=TEXT)), "Project: Scan has no `b`"),
    ("a column of another type", plan(Project(source=SCAN, field="n", type=TEXT)), "Project: `n` is int, not text"),
    (
        "rows from elsewhere",
        plan(Project(source=OTHER, field="b", type=TEXT)),
        "Scan: these rows are not those of the plan around it",
    ),
    ("no table at all", plan(X, INNER), "Parameters: the rows of a plan come from a Scan"),
    ("a call over rows from elsewhere", plan(llm(rows=OTHER)), "Scan: these rows are not those of the plan around it"),
    (
        "a value that is there only further up",
        plan(A, Filter(rows=SCAN, condition=llm(rows=Limit(rows=SCAN, count=1)))),
        "Limit: these rows are not those of the plan around it",
    ),
    (
        "a call that reads a spread item over the rows before the spread",
        plan(
            llm(
                content=Render(
                    template=Template(segments=(Slot(value=Arg(index=0)),)),
                    args=(Project(source=Unnest(rows=SCAN, value=ITEMS, name="item"), field="item", type=TEXT),),
                )
            ),
            Unnest(rows=SCAN, value=ITEMS, name="item"),
        ),
        "Generate `ask`: it reads Render, which is there only in later rows",
    ),
    ("a column read through a group", plan(A, GROUP), "Sink: it reads Project, which ends at a GroupReduce"),
    (
        "a value of both sides of a group",
        plan(apply(Binary(op="+", left=Arg(index=0), right=Arg(index=1)), A, KEY), GROUP),
        "Apply: it reads values from before and after a GroupReduce",
    ),
    (
        "a column twice",
        LogicalPlan(name="p", sink=Sink(rows=SCAN, columns=(("b", A), ("b", N)))),
        "Sink: column `b` stands twice",
    ),
    ("a column of every result", plan(A, name="_error"), "Sink: `_error` is a column of every result"),
    (
        "two steps of one name",
        LogicalPlan(name="p", sink=Sink(rows=SCAN, columns=(("b", llm()), ("c", llm(sample=1, cache=False))))),
        "Generate `ask`: another step has this name: Generate `ask`",
    ),
    ("an input twice", plan(A, Scan(columns=(Column("a", TEXT), Column("a", INT)))), "Scan: column `a` stands twice"),
    (
        "a default of another type",
        plan(HELLO, Scan(columns=(Column("a", INT, "x"),))),
        'Scan: the default of `a`: expected int, found text "x"',
    ),
    ("a spread of a text", plan(HELLO, Unnest(rows=SCAN, value=A, name="c")), "Unnest: it runs over a list, not text"),
    ("fewer rows than none", plan(A, Limit(rows=SCAN, count=-1)), "Limit: -1 rows"),
    ("a constant that is no JSON", plan(Const(type=TEXT, json="{")), "Const: its value is not JSON"),
    ("a constant that is not canonical", plan(Const(type=INT, json=" 1")), "Const: its value is not in canonical form"),
    (
        "a constant of another type",
        plan(Const(type=INT, json='"1"')),
        'Const: its value does not fit its type: expected int, found text "1"',
    ),
    ("an unbound name", plan(apply(Name(name="a"))), "Apply: the name `a` is not bound"),
    ("an input that is not there", plan(apply(Arg(index=1), A)), "Apply: it reads input 1 of 1"),
    (
        "an unknown operator",
        plan(apply(Binary(op="**", left=Arg(index=0), right=Arg(index=0)), N)),
        "Apply: `**` is not an operator",
    ),
    ("an unknown sign", plan(apply(Unary(op="~", operand=Arg(index=0)), N)), "Apply: `~` is not an operator"),
    (
        "a function of too little",
        plan(apply(Call(function="replace", args=(Arg(index=0),)), A)),
        "Apply: `replace` does not take 1 arguments",
    ),
    ("a prompt that is no text", plan(replace(HELLO, type=INT)), "Render: a prompt is text, not int"),
    ("an empty prompt", plan(replace(llm(), prompt=())), "Generate `ask`: the prompt is empty"),
    ("a message that is no text", plan(llm(content=N)), "Generate `ask`: `user` is text, not int"),
    ("a reply of another type", plan(llm(returns=INT)), "Generate `ask`: it is text, but gives int"),
    ("samples that are no list", plan(llm(sample=2)), "Generate `ask`: it is text, but gives list[text]"),
    ("no samples", plan(llm(sample=0)), "Generate `ask`: 0 samples"),
    ("null where errors are not", plan(llm(type=Optional(TEXT))), "Generate `ask`: it is text?, but gives text"),
    (
        "a tool given too little",
        plan(Invoke(type=JSON, rows=SCAN, step="s", tool=TOOL, args=())),
        "Invoke `s`: `find` takes 1 arguments, not 0",
    ),
    (
        "a tool given another type",
        plan(Invoke(type=JSON, rows=SCAN, step="s", tool=TOOL, args=(N,))),
        "Invoke `s`: argument `key` is text, not int",
    ),
    (
        "a tool that gives another type",
        plan(Invoke(type=TEXT, rows=SCAN, step="s", tool=TOOL, args=(A,))),
        "Invoke `s`: it is text, but gives json",
    ),
    ("a loop over a text", plan(loop(over=A)), "Map `each`: it runs over a list, not text"),
    ("a loop given too much", plan(loop(captures=(A,))), "Map `each`: it passes 2 values to 1 parameters"),
    (
        "a loop given another type",
        plan(loop(over=Const(type=ListOf(INT), json="[1]"))),
        "Map `each`: `x` is text, not int",
    ),
    (
        "a loop that gives two values",
        plan(loop(body=Body(parameters=INNER, results=(("yield", X), ("more", X))))),
        "Map `each`: the body of a Map gives `yield`, not ['yield', 'more']",
    ),
    ("a loop of another type", plan(loop(type=ListOf(INT))), "Map `each`: it is list[int], but gives list[text]"),
    (
        "a body that reads from outside",
        plan(loop(body=Body(parameters=INNER, results=(("yield", A),)))),
        "Map `each`: its `body` reads Scan from outside",
    ),
    (
        "a call in a body that runs over outside rows",
        plan(loop(body=Body(parameters=INNER, results=(("yield", llm()),)))),
        "Map `each`: its `body` reads Scan from outside",
    ),
    (
        "branches of different names",
        plan(choose(otherwise=Body(parameters=INNER, results=(("z", X),)))),
        "Choose: its branches give different names",
    ),
    ("a branch given too little", plan(choose(captures=())), "Choose: it passes 0 values to 1 parameters"),
    (
        "a name twice in a body",
        plan(choose(then=Body(parameters=INNER, results=(("y", X), ("y", X))))),
        "Choose: its branches give different names",
    ),
    ("an output that no branch gives", plan(replace(choose(), field="z")), "Project: Choose has no `z`"),
    ("no rounds", plan(repeat(times=0)), "Repeat: 0 rounds"),
    (
        "a name carried round that no round gives",
        plan(repeat(body=Body(parameters=INNER, results=(("z", X),)))),
        "Repeat: `x` is carried round, but its body does not give it",
    ),
    (
        "a name carried round under another",
        plan(repeat(carried=(("z", A),))),
        "Repeat: `z` is carried round as `x`",
    ),
    (
        "a name that comes round as another type",
        plan(repeat(carried=(("x", N),), body=ROUND)),
        "Repeat: `x` of the next round is int, not text",
    ),
    (
        "the condition of a loop read as an output",
        plan(replace(repeat(), field="until?")),
        "Project: Repeat has no `until?`",
    ),
]


@pytest.mark.parametrize("subject", [each[1] for each in RIGHT], ids=[each[0] for each in RIGHT])
def test_a_plan_that_is_right_passes(subject: LogicalPlan) -> None:
    verify(subject)


@pytest.mark.parametrize(("subject", "message"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_a_broken_plan_is_told_apart(subject: LogicalPlan, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        verify(subject)
    assert re.sub(r" \([0-9a-f]{16}\)", "", str(caught.value)) == message


def test_a_message_names_the_operator_by_its_id() -> None:
    wrong: Node = llm(returns=INT)
    with pytest.raises(PlanError, match=rf"^Generate `ask` \({wrong.id}\): "):
        verify(plan(llm(returns=INT)))


def test_what_is_wrong_inside_a_body_is_found() -> None:
    wrong = apply(Field(base=Arg(index=3), name="f"), X)
    with pytest.raises(PlanError, match="it reads input 3 of 1"):
        verify(plan(loop(body=Body(parameters=INNER, results=(("yield", wrong),)))))


def test_types_that_fit_by_a_check_at_run_time_are_right() -> None:
    anything = Project(source=Scan(columns=(Column("j", JSON),)), field="j", type=JSON)
    verify(plan(Invoke(type=JSON, rows=anything.source, step="s", tool=TOOL, args=(anything,)), anything.source))  # type: ignore[arg-type]
    verify(plan(apply(Unary(op="not", operand=Arg(index=0)), A, type=BOOL)))
