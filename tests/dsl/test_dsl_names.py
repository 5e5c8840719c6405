"""The names of steps: read from the assignment of the call, given by `name=`, or counted."""

from __future__ import annotations

import linecache
import re
from typing import Any

import pytest
from dsl_same import failure, steps

import helix.dsl as hx
from helix import syntax
from helix.dsl.names import REFUSED
from helix.errors import SourceErrors
from helix.grammar import parse as parse_module
from helix.grammar.format import format_workflow
from helix.grammar.parse import parse

main = hx.model("m")
nested = {"model": hx.model("n")}


@hx.tool
def find(key: str) -> dict: ...


def named(function: Any) -> list[str]:
    """The names of a workflow's steps in their order."""
    return [s.name for s in hx.workflow(function).syntax.statements if isinstance(s, syntax.Step)]


def test_variables():
    def w(a: str):
        one = main(a)
        two: Any = main(a)
        (three) = find(
            a,
        )
        four = five = main(a)
        six, seven = main(a), main(a)
        if (eight := main(a)) is None:
            raise AssertionError
        nine = main(a) if two is not None else find(a)
        ten = (
            find(a)
            .when(a == "x")
            .when(a == "y")
        )  # fmt: skip
        return hx.output(one, two, three, four, five, six, seven, eight, nine, ten)

    assert named(w) == ["one", "two", "three", "four", "six", "seven", "eight", "nine", "ten"]


def test_where_no_variable_is_given():
    class Box:
        value: Any

    def w(a: str):
        box = Box()
        box.value = main(a)
        many = {}
        many[a * 1 if False else "k"] = main(a)
        first, second = (main(user=text) for text in ("x", "y"))
        _ = main(a)
        field = main(a).note
        main(user=main(f"{find(a)}"))
        return hx.output(x=[box.value, many["k"], first, second, field])

    assert named(w) == [f"step{number}" for number in range(1, 10)]


def test_keys_and_columns():
    def w(a: str):
        parts = {"head": main(a), "tail": find(a).when(a != "")}
        return hx.output(x=parts["head"], y=parts["tail"], draft=main(a), rest=[main(a)])

    assert named(w) == ["head", "tail", "draft", "rest"]


def test_repeated_calls_of_one_place():
    def w(a: str):
        views = [main(f"{role} {a}") for role in ("x", "y", "z")]
        by_role = {role: main(f"{role} {a}") for role in ("x", "y")}
        pair = [main(a), main(a)]
        for _ in range(2):
            view = main(a)
        return hx.output(x=[*views, *by_role.values(), *pair, view])

    assert named(w) == [
        "views", "views_2", "views_3", "by_role", "by_role_2", "pair", "pair_2", "view", "view_2",
    ]  # fmt: skip


def test_a_helper_passes_its_callers_variable_on():
    def ask(question: Any) -> Any:
        return main(question)

    def ask_twice(question: Any) -> Any:
        draft = ask(question)
        return ask(draft)

    quick = lambda question: main(question)  # noqa: E731

    def w(a: str):
        answer = ask(a)
        better = ask_twice(a)
        soon = quick(a)
        return hx.output(answer, better, soon, last=ask(a))

    assert named(w) == ["answer", "draft", "better", "soon", "last"]


def test_names_that_are_taken():
    def w(a: str, view: str):
        main_ = main(a)
        find_ = find(a)

        def inner():
            main = nested["model"](a)
            find = hx.step(view)
            view_ = view
            return main, find, view_

        m, f, _ = inner()
        view = main(a)
        null = main(a)
        return hx.output(x=[main_, find_, m, f, view, null])

    assert named(w) == ["main_", "find_", "main_2", "find_2", "view_2", "step1"]


def test_names_asked_for():
    def w(a: str):
        x = main(a, name="first")
        y = hx.step(find(a), name="second")
        z = hx.map(lambda i: i, ["u"], name="third")
        first = main(a)
        return hx.output(x=[x, y, z, first])

    assert named(w) == ["first", "second", "third", "first_2"]


def test_the_inside_of_maps_has_names_of_its_own():
    @hx.workflow
    def w(a: list[str]):
        def body(item):
            view = main(item)
            return view

        one = hx.map(body, a)
        two = hx.map(body, a)
        view = hx.step(hx.length(one))
        return hx.output(one, two, view)

    body = 'for item in a {\n  view = llm main { user "{{ item }}" }\n  yield view\n}'
    assert steps(w).partition("\n\n")[2] == f"one = {body}\ntwo = {body}\nview = len(one)\noutput one, two, view"


def test_models_are_named_by_their_variables():
    small = hx.model("s")
    boxed = [hx.model("b"), hx.model("c")]

    @hx.workflow
    def w(small_: str):
        return hx.output(a=small("x"), b=boxed[0]("x"), c=boxed[1]("x"), d=nested["model"]("x"), e=small("y"))

    declared = [s for s in w.syntax.statements if isinstance(s, syntax.ModelDecl)]
    assert [(m.name, m.options[0].value.value) for m in declared] == [  # type: ignore[attr-defined]
        ("small", "s"),
        ("boxed", "b"),
        ("boxed_2", "c"),
        ("model", "n"),
    ]


def run_text(text: str, name: str | None) -> Any:
    """The workflow `w` of a module given as text; its source is known only under a name."""
    if name is not None:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"hx": hx, "__name__": "notebook"}
    exec(compile(text, name or "<nowhere>", "exec"), space)
    return space["w"]


CELL = '''
model = hx.model("m")
@hx.workflow
def w(a: str):
    ünder = model(f"""é {a}"""); zwei = model(a)
    return hx.output(ünder, zwei)
'''


def test_a_notebook_cell():
    w = run_text(CELL, "/tmp/ipykernel_1/42.py")
    assert [s.name for s in w.syntax.statements if hasattr(s, "name")] == ["model", "ünder", "zwei"]


def test_without_the_source():
    w = run_text(CELL, None)
    assert [s.name for s in w.syntax.statements if hasattr(s, "name")] == ["model1", "step1", "step2"]
    assert w.syntax.statements[-1].items[0].name == "step1"


def test_a_source_that_is_not_python():
    linecache.cache["<magic>"] = (1, None, ["%time x = 1\n"] * 9, "<magic>")
    space: dict[str, Any] = {"hx": hx}
    exec(compile(CELL, "<magic>", "exec"), space)
    assert [s.name for s in space["w"].syntax.statements if hasattr(s, "name")] == ["model1", "step1", "step2"]


EVERYWHERE = """workflow t(a: text)
z = a
?? = llm { user "{{ a }}" }
b = ?? + ??.x
c = llm { user "{{ ?? }}{{ ??.x + b }}" history ?? } when ?? == 1
d = for e in ?? { yield ?? }
sort by ??, b
limit ??
output ??, b, c as k, d
"""


def words() -> list[str]:
    grammar = (parse_module.Path(parse_module.__file__).with_name("helix.lark")).read_text()
    return sorted({*re.findall(r"[a-z]{2,}", grammar), "True", "False", "None", "none", "is", "loop", "self", "rows"})


@pytest.mark.parametrize("word", [word for word in words() if word not in REFUSED])
def test_a_word_that_is_not_reserved_can_be_a_name_in_the_text_form(word: str):
    plain = format_workflow(parse(EVERYWHERE.replace("??", "xyz")))
    assert format_workflow(parse(EVERYWHERE.replace("??", word))) == plain.replace("xyz", word)


@pytest.mark.parametrize("word", sorted(REFUSED - {"workflow"}))
def test_a_reserved_word_cannot(word: str):
    plain = format_workflow(parse(EVERYWHERE.replace("??", "xyz")))
    try:
        printed = format_workflow(parse(EVERYWHERE.replace("??", word)))
    except SourceErrors:
        return
    assert printed != plain.replace("xyz", word)


def test_names_that_clash():
    @hx.workflow
    def twice(a: str):
        main(a, name="x")
        return hx.output(y=main(a, name="x"))

    @hx.workflow
    def an_input(a: str):
        return hx.output(y=main(a, name="a"))

    @hx.workflow
    def a_model(a: str):
        return hx.output(y=main(a, name="main"))

    assert failure(twice).message == "a step cannot be named `x`: it is already a step"
    assert failure(an_input).message == "a step cannot be named `a`: it is already an input"
    assert failure(a_model).message == "a step cannot be named `main`: it is already declared"
