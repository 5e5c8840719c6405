"""Binding what is right: types, names over branches and loops, warnings, constants from outside, sub-workflows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helix.errors import SourceErrors
from helix.grammar.bind import Bound, bind
from helix.grammar.parse import parse
from helix.logical import Generate, Invoke, Map, Node, Repeat, every_node
from helix.show import plan_text

INPUTS = (
    't: text, u: text?, n: int, m: int?, f: float, b: bool, j: json, k: json?, kind: choice["x", "y"], '
    "items: list[text], nums: list[int]?, rec: { ok: bool, note: text? }, rec2: { ok: bool }?, tab: table"
)


def bound(text: str) -> Bound:
    """A workflow over one input of each type."""
    return bind(parse(f"workflow w({INPUTS})\n{text}\n", "w.helix"))


def type_of(expression: str, before: str = "") -> str:
    """The type that the plan gives an expression."""
    sink = bound(f"{before}\noutput {expression} as it").plan.sink
    return str(sink.columns[0][1].type)


def steps(plan_of: Bound) -> list[str]:
    """The names of all steps that call or loop."""
    return [node.step for node in every_node(plan_of.plan.sink) if isinstance(node, Generate | Invoke | Map)]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("t", "text"),
        ("u", "text?"),
        ("k", "json?"),
        ('u + "x"', "text?"),
        ('default(u, "none")', "text"),
        ("u | 0", None),
        ("n + m", "int?"),
        ("n + f", "float"),
        ("n / 2", "float"),
        ("n * 2 - 1", "int"),
        ("n + j", "json"),
        ("-m", "int?"),
        ("not t", "bool"),
        ('t == "x"', "bool"),
        ("t and n", "json"),
        ("n or f", "float"),
        ("u or t", "text?"),
        ("items[0]", "text"),
        ("nums[0]", "int?"),
        ("t[0]", "text"),
        ("tab[0]", "json"),
        ("tab[0].x.y", "json"),
        ("rec.note", "text?"),
        ("rec2.ok", "bool?"),
        ("rec", "{ ok: bool, note: text? }"),
        ("[1, 2.5]", "list[float]"),
        ("[1, null]", "list[int?]"),
        ('["x", kind]', "list[text]"),
        ("[1, t]", "list[json]"),
        ("[]", "list[json]"),
        ("{ a: 1, b: u }", "{ a: int, b: text? }"),
        ("items + [kind]", "list[text]"),
        ("len(items)", "int"),
        ("split(t)", "list[text]"),
        ("first(items)", "text"),
        ("max(nums)", "int"),
        ("null", "null"),
        ("[null]", "list[null]"),
    ],
)
def test_types_of_expressions(expression: str, kind: str | None) -> None:
    if kind is None:
        with pytest.raises(SourceErrors):
            type_of(expression)
    else:
        assert type_of(expression) == kind


@pytest.mark.parametrize(
    ("steps_before", "kind"),
    [
        ('x = llm { user "a" }', "text"),
        ('x = llm { user "a" } when b', "text?"),
        ('x = llm -> json { user "a" } when b', "json"),
        ("x = 1 when b", "int?"),
        ("x = m when b", "int?"),
        ('x = llm(sample: 2, temperature: 1) -> int { user "a" }', "list[int]"),
        ('x = llm(on_error: null) -> int { user "a" }', "int?"),
        ("if b { x = 1 } else { x = 2.5 }", "float"),
        ("if b { x = 1 } else { x = t }", "json"),
        ("if b { x = kind } else { x = t }", "text"),
        ("if b { x = t } else { y = t }", "text?"),
        ("if b { x = t } else { x = null }", "text?"),
        ("if b { x = [1] } else { x = [t] }", "list[json]"),
        ("if b { x = 1 } else if n > 1 { x = 2 } else { x = 3 }", "int"),
        ("if b { x = 1 } else if n > 1 { x = 2 }", "int?"),
        ("x = for i in items { yield len(i) }", "list[int]"),
        ("x = for i in nums { yield i }", "list[int]?"),
        ("x = for i in j { yield i }", "list[json]"),
        ("x = for i in tab { yield i.a }", "list[json]"),
        ("x = 1\nrepeat up to 2 { x = x + 1 }", "int"),
        ("x = 1\nrepeat up to 2 { x = x / 2 }", "float"),
        ("x = 1\nrepeat up to 2 { x = u }", "text?"),
        ("if b { x = t } else { x = k }", "json"),
        ("x = null\nrepeat up to 2 { x = t }", "text"),
        ("x = null\nrepeat up to 2 { if b { x = t } }", "text?"),
        ("x = 1\ny = 1\nrepeat up to 2 { x = y\ny = y + 0.5 }", "float"),
        ("x = []\nrepeat up to 2 { x = x + [t] }", "list[json]"),
        ("x = [t]\nrepeat up to 2 { x = [x] }", "list[list[json]]"),
        ("spread items as x", "text"),
        ("spread nums as x", "int"),
        ("spread j as x", "json"),
    ],
)
def test_types_of_steps(steps_before: str, kind: str) -> None:
    assert type_of("x", steps_before) == kind


def test_a_default_takes_the_place_of_null_and_no_default_does_not() -> None:
    text = 'workflow w(a: text?, b: text? = "x", c: text? = null, d: int? = 0)\noutput a, b, c, d\n'
    kinds = [str(value.type) for _, value in bind(parse(text)).plan.sink.columns]
    assert kinds == ["text?", "text", "text?", "int"]


def test_the_rows_of_a_group_are_records_of_what_was_there() -> None:
    text = 'x = llm -> int { user "{{ t }}" }\nlet c = 3\ngroup by t { all = rows }'
    sink = bound(f"{text}\noutput all, c").plan.sink
    kind = str(sink.columns[0][1].type)
    assert kind.startswith("list[{ t: text, u: text?, n: int,")
    assert kind.endswith("tab: table, x: int }]")


# --- names over branches and loops --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "if b { x = 1 } else { x = 2 }\noutput x",
        "if b { x = 1 }\nrepeat up to 2 { x = 2 }\noutput x",
        "x = 1\nrepeat up to 2 { if b { x = 2 } else { x = 3 } }\noutput x",
        "x = 1\nrepeat up to 2 { repeat up to 2 { x = 2 } }\noutput x",
        "repeat up to 2 { x = 1\nrepeat up to 2 { x = x + 1 } }\noutput x",
        "if b { x = 1\nrepeat up to 2 { x = x + 1 } }\noutput x",
        "x = for i in items { y = 1\nrepeat up to 2 { y = y + 1 }  yield y }\noutput x",
        "x = for i in items { v = i  yield v }\ny = for i in items { v = i  yield v }\nv = 1\noutput x, y, v",
        "x = t\ny = x\nrepeat up to 2 { x = y }\noutput x, y",
    ],
)
def test_names_that_may_be_set_again(text: str) -> None:
    assert bound(text).plan.sink.columns


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\nif b { x = 2 }\noutput x",
        "x = 1\nif b { repeat up to 2 { x = 2 } }\noutput x",
        "x = 1\ny = for i in items { repeat up to 2 { x = 2 }  yield i }\noutput x, y",
        "x = 1\nrepeat up to 2 { y = for i in items { x = 2  yield i } }\noutput x, y",
        "x = 1\nrepeat up to 2 { if b { x = 2 }\nif b { x = 3 } }\noutput x",
        "x = 1\nrepeat up to 2 { repeat up to 2 { x = 2 }\nx = 3 }\noutput x",
        "spread items as x\nrepeat up to 2 { x = 2 }\noutput x",
        "x = for t in items { yield t }\noutput x",
        'tool find(a: text) -> json from python "l:f"\nrepeat up to 2 { find = 2 }\noutput find',
        "group by t { n2 = 1 }\nn = 3\noutput t, n, n2",
        "x = upper(t)\ngroup by x { n2 = 1 }\nrepeat up to 2 { x = 3 }\noutput x, n2",
    ],
)
def test_names_that_may_not(text: str) -> None:
    with pytest.raises(SourceErrors) as caught:
        bound(text)
    assert ["is already set" in str(error) for error in caught.value.errors] == [True]


def test_a_body_captures_what_it_reads_and_nothing_else() -> None:
    loop = "z = for p in items { yield [i, p, x, c, u] }"
    text = f'let c = "k"\nx = upper(t)\ny = for i in items {{ {loop}  yield z }}\noutput y'
    outer = next(node for node in every_node(bound(text).plan.sink) if isinstance(node, Map))
    assert [name for name, _ in outer.body.parameters.columns] == ["i", "items", "x", "u"]
    inner = next(node for node in every_node(outer.body.result("yield")) if isinstance(node, Map))
    assert [name for name, _ in inner.body.parameters.columns] == ["p", "i", "x", "u"]


def test_a_name_that_no_round_sets_is_not_carried() -> None:
    text = "x = t\ny = 1\nrepeat up to 3 until y > 2 { y = y + len(x) }\noutput y"
    loop = next(node for node in every_node(bound(text).plan.sink) if isinstance(node, Repeat))
    assert [name for name, _ in loop.carried] == ["y"]
    assert [name for name, _ in loop.body.results] == ["y", Repeat.UNTIL]


def test_calls_that_nobody_reads_are_kept_wherever_they_stand() -> None:
    text = """
tool save(x: text) -> json from python "lib:save" effects write
a1 = save(t)
if b { a2 = save(t) } else if n > 1 { a3 = save(t) }
a4 = for i in items { a5 = save(i)  yield i } when b
repeat up to 2 { a6 = for i in items { a7 = save(i)  yield i } }
group by t { a8 = save(t) }
output t
"""
    assert sorted(set(steps(bound(text)))) == ["a1", "a2", "a3", "a4", "a4.a5", "a6", "a6.a7", "a8"]


# --- warnings -----------------------------------------------------------------------------------------------------


def test_what_is_probably_not_meant_is_told_once() -> None:
    text = """workflow w(a: text, spare: int)
let tone = "x"
model unused { name: "m" }
model main { name: "m" }
tool look(x: text) -> json from python "lib:look" effects read
tool save(x: text) -> json from python "lib:save" effects write
function score(x: text) -> int from python "lib:score"
looked = look(a)
saved = save(a)
n = 1
repeat up to 3 { n = n / 2, four = llm main(sample: 4) { user "{{ a }}" } }
output a, n
"""
    found = [(warning.message, warning.span.line if warning.span else None) for warning in bind(parse(text)).warnings]
    assert found == [
        ("`four` samples 4 times at temperature 0: the replies will be alike", 11),
        ("input `spare` is never used", 1),
        ("step `looked` is never used", 8),
        ("step `four` is never used", 11),
        ("constant `tone` is never used", 2),
        ("model `unused` is never used", 3),
        ("function `score` is never used", 7),
    ]


def test_columns_that_a_group_shows_as_rows_count_as_used() -> None:
    prompt = "{% for r in rows %}{{ r.c }}{% endfor %}"
    text = f'c = b + 1\ngroup by a {{ s = llm {{ user "{prompt}" }} }}\noutput a, s\n'
    assert bind(parse(f"workflow w(a: text, b: int)\n{text}")).warnings == ()


# --- constants from outside ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "given", "value"),
    [
        ('"plain"', "warm", '"warm"'),
        ("3", "4", "4"),
        ("0.5", "2", "2.0"),
        ("true", "false", "false"),
        ('["a"]', '["b", "c"]', '["b","c"]'),
        ("null", "anything", '"anything"'),
        ('"x"', "007", '"007"'),
    ],
)
def test_set_takes_the_place_of_a_constant_of_its_type(written: str, given: str, value: str) -> None:
    text = f"workflow w(a: text)\nlet c = {written}\nlet d = [c]\noutput a, c, d\n"
    plan = bind(parse(text), overrides={"c": given}).plan
    assert f"Sink a, c={value.replace(',', ', ')}, d=[" in plan_text(plan)


def test_constants_may_stand_below_what_uses_them_and_use_each_other() -> None:
    text = """workflow w(a: text)
x = llm main { user "{{ both }}" }
model main { name: "m", max_tokens: size }
let one = 1
let both = one + 1
let size = both * 8
output a, x
"""
    call = next(node for node in every_node(bind(parse(text)).plan.sink) if isinstance(node, Generate))
    assert call.model.max_tokens == 16


# --- sub-workflows ------------------------------------------------------------------------------------------------


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_sub_workflows_use_others_beside_themselves(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "parts/a.helix": 'workflow a(x: text)\nuse "deep/b.helix" as b\none = b(x)\noutput one.y as y\n',
            "parts/deep/b.helix": 'workflow b(x: text)\ny = llm { user "{{ x }}" }\noutput y\n',
        },
    )
    text = 'workflow w(t: text)\nuse "parts/a.helix" as a\nfirst = a(t)\nsecond = a(x: first.y)\noutput second.y as y\n'
    assert steps(bind(parse(text), folder=tmp_path)) == ["first.one.y", "second.one.y"]


def test_names_models_and_constants_of_a_sub_workflow_are_its_own() -> None:
    inner = """workflow i(t: text)
let c = 5
model main { name: "inner" }
y = llm { user "{{ t }} {{ c }}" }
output y
"""
    text = """workflow w(t: text)
let c = 1
model main { name: "outer" }
use "i" as i
y = llm { user "{{ c }}" }
z = i(t)
output y, z.y as zy
"""
    plan = bind(parse(text), modules={"i": parse(inner)}).plan
    calls = {node.step: node.model.name for node in every_node(plan.sink) if isinstance(node, Generate)}
    assert calls == {"y": "outer", "z.y": "inner"}


def test_a_sub_workflow_whose_file_is_a_link_to_outside_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"secret.helix": "workflow s(x: text)\noutput x\n", "in/empty": ""})
    os.symlink(tmp_path / "secret.helix", tmp_path / "in" / "link.helix")
    text = 'workflow w(t: text)\nuse "link.helix" as s\nx = s(t)\noutput x\n'
    with pytest.raises(SourceErrors) as caught:
        bind(parse(text), folder=tmp_path / "in")
    assert [str(error) for error in caught.value.errors] == ['"link.helix" lies outside the folder of the workflow']


def test_a_workflow_that_is_in_no_file_uses_none() -> None:
    with pytest.raises(SourceErrors, match="a workflow that is not in a file cannot `use` one"):
        bind(parse('workflow w(t: text)\nuse "s.helix" as s\nx = s(t)\noutput x\n'))


def test_a_long_chain_of_branches_is_refused_in_words() -> None:
    chain = "if b { x = 0 }" + "".join(f" else if n == {number} {{ x = {number} }}" for number in range(200))
    with pytest.raises(SourceErrors, match="an `if` has at most 100 conditions, found 201"):
        bound(f"{chain}\noutput x")


def test_a_hundred_branches_bind() -> None:
    chain = "if b { x = 0 }" + "".join(f" else if n == {number} {{ x = {number} }}" for number in range(99))
    assert type_of("x", chain) == "int?"


def test_binding_takes_time_in_proportion_to_the_steps() -> None:
    """Each step reads the one before; the plan has a few operators for each."""
    lines = "\n".join(f's{number + 1} = llm {{ user "{{{{ s{number} }}}}" }}' for number in range(400))
    plan = bound(f"s0 = t\n{lines}\noutput s400").plan
    nodes: list[Node] = list(every_node(plan.sink))
    assert len(nodes) < 400 * 3 + 10
