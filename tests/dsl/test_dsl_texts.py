"""Values inside the texts of Python: f-strings, t-strings, formatting, and every character around them."""

from __future__ import annotations

import sys
import textwrap
from types import ModuleType
from typing import Any

import pytest
from dsl_same import failure
from hypothesis import given
from hypothesis import strategies as st

import helix.dsl as hx
from helix import syntax
from helix.expr import Binary, Call, Field, Literal, Name
from helix.grammar.format import format_workflow
from helix.grammar.parse import parse
from helix.templates.template import Slot, Text

main = hx.model("m")


def prompt_of(make: Any) -> tuple[Any, ...]:
    """The segments of the prompt that a function makes of two texts and a record."""

    @hx.workflow
    def w(a: str, b: str, r: dict):
        return hx.output(x=main(user=make(a, b, r)))

    step = next(s for s in w.syntax.statements if isinstance(s, syntax.Step))
    assert parse(format_workflow(w.syntax)) == w.syntax
    return step.value.parts[0].content.segments  # type: ignore[union-attr]


A, B = Slot(value=Name(name="a")), Slot(value=Name(name="b"))


@pytest.mark.parametrize(
    ("make", "segments"),
    [
        (lambda a, b, r: f"{a}", (A,)),
        (lambda a, b, r: a, (A,)),
        (lambda a, b, r: "plain", (Text(text="plain"),)),
        (lambda a, b, r: "", ()),
        (lambda a, b, r: f"{a}{b}", (A, B)),
        (lambda a, b, r: f"<{a}> and <{b}>", (Text(text="<"), A, Text(text="> and <"), B, Text(text=">"))),
        (lambda a, b, r: f"{{{{ a }}}} {{% if %}} {{# {a}", (Text(text="{{ a }} {% if %} {# "), A)),
        (lambda a, b, r: "{{ a }}", (Text(text="{{ a }}"),)),
        (lambda a, b, r: f"\\{a}\\n\n\t", (Text(text="\\"), A, Text(text="\\n\n\t"))),
        (lambda a, b, r: f"สวัสดี {a} 👩‍🚀 é\u0301", (Text(text="สวัสดี "), A, Text(text=" 👩‍🚀 é\u0301"))),
        (lambda a, b, r: f'{{"x": "{a}", \'y\': 100%}}', (Text(text='{"x": "'), A, Text(text="\", 'y': 100%}"))),
        (lambda a, b, r: f"{r.x['y']}", (Slot(value=Field(base=Field(base=Name(name="r"), name="x"), name="y")),)),
        (lambda a, b, r: f"{a + b}", (Slot(value=Binary(op="+", left=Name(name="a"), right=Name(name="b"))),)),
        (lambda a, b, r: f"{hx.upper(a)}", (Slot(value=Call(function="upper", args=(Name(name="a"),))),)),
        (lambda a, b, r: f"{a}{' and '}{b}{3}", (A, Text(text=" and "), B, Text(text="3"))),
        (lambda a, b, r: "{} then {}".format(a, b), (A, Text(text=" then "), B)),  # noqa: UP032
        (lambda a, b, r: "{x} then {y}".format(x=a, y=b), (A, Text(text=" then "), B)),  # noqa: UP032
        (lambda a, b, r: "%s%%" % a, (A, Text(text="%"))),  # noqa: UP031
        (lambda a, b, r: str(a) + "!", (A, Text(text="!"))),
        (lambda a, b, r: ", ".join([str(a), "x", str(b)]), (A, Text(text=", x, "), B)),
        (lambda a, b, r: f"{f'[{a}]'}{b}", (Text(text="["), A, Text(text="]"), B)),
        (lambda a, b, r: textwrap.dedent(f"    {a}\n      x\n"), (A, Text(text="\n  x\n"))),
        (lambda a, b, r: f"  {a}  ".strip(), (A,)),
        (lambda a, b, r: f"{a!s}", (A,)),
    ],
)
def test_prompts(make: Any, segments: tuple[Any, ...]):
    assert prompt_of(make) == segments


# What no workflow may hold, and the two marks of the values themselves.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\U0010f1e5\U0010f1e6"), max_size=30)


@given(st.lists(texts, min_size=1, max_size=4))
def test_literal_text_stays_byte_for_byte(pieces: list[str]):
    segments = prompt_of(lambda a, b, r: str(a).join(pieces))
    found = "".join(s.text if isinstance(s, Text) else "\0" for s in segments)
    assert found == "\0".join(pieces)
    assert all(s == A for s in segments if not isinstance(s, Text))


@given(st.lists(texts, min_size=1, max_size=4))
def test_literal_text_outside_prompts_stays_too(pieces: list[str]):
    @hx.workflow
    def w(a: str):
        return hx.output(x=str(a).join(pieces), y={"k": pieces})

    items = w.syntax.statements[-1].items  # type: ignore[union-attr]
    parts: list[str] = []
    stack = [items[0].value]
    while stack:
        top = stack.pop()
        if isinstance(top, Binary):
            stack += [top.right, top.left]
        else:
            parts.append(top.value if isinstance(top, Literal) else "\0")
    assert "".join(parts) == "\0".join(pieces)
    assert parse(format_workflow(w.syntax)) == w.syntax


@pytest.mark.parametrize("char", ["\U0010f1e5", "\U0010f1e6"])
def test_the_marks_themselves_cannot_stand_in_a_text(char: str):
    @hx.workflow
    def w(a: str):
        return hx.output(x=main(user=f"{char} {a}"))

    assert failure(w).message.startswith("a text with a value in it was changed")


def test_a_text_of_another_workflow():
    kept: list[str] = []

    @hx.workflow
    def one(a: str):
        kept.append(f"{a}!")
        return hx.output(a)

    @hx.workflow
    def two(b: str):
        return hx.output(x=main(user=kept[0]))

    assert one.syntax.name == "one"
    assert failure(two).message == "a text holds a value of another workflow than `two`"


def test_a_value_of_another_workflow():
    kept: list[Any] = []

    @hx.workflow
    def one(a: str):
        kept.append(a)
        return hx.output(a)

    @hx.workflow
    def two(b: str):
        return hx.output(x=b == kept[0])

    assert one.syntax.name == "one"
    assert failure(two).message == "`a` is a value of workflow `one`, not of `two`"


# --- t-strings, which Python has since 3.14 -----------------------------------------------------------------------


class Interpolation:
    def __init__(self, value: Any, conversion: str | None = None, format_spec: str = "") -> None:
        self.value = value
        self.conversion = conversion
        self.format_spec = format_spec


class Template:
    """The shape of `string.templatelib.Template`: one more string than values."""

    __module__ = "string.templatelib"

    def __init__(self, *parts: Any) -> None:
        strings, self.interpolations = [""], []
        for part in parts:
            if isinstance(part, str):
                strings[-1] += part
            else:
                self.interpolations.append(part)
                strings.append("")
        self.strings = tuple(strings)


@pytest.mark.parametrize(
    ("make", "segments"),
    [
        (lambda a, b: Template("<", Interpolation(a), ">"), (Text(text="<"), A, Text(text=">"))),
        (lambda a, b: Template(Interpolation(a), Interpolation(b)), (A, B)),
        (lambda a, b: Template("{{ x }}", Interpolation(True)), (Text(text="{{ x }}true"),)),
        (lambda a, b: Template("x ", Interpolation(Template("<", Interpolation(a), ">"))),
         (Text(text="x <"), A, Text(text=">"))),
        (lambda a, b: Template(Interpolation(f"{a}+{b}")), (A, Text(text="+"), B)),
    ],
)  # fmt: skip
def test_template_strings(make: Any, segments: tuple[Any, ...]):
    assert prompt_of(lambda a, b, r: make(a, b)) == segments


def test_a_template_string_as_an_expression():
    @hx.workflow
    def w(a: str):
        return hx.output(x=Template("<", Interpolation(a), ">"))

    assert format_workflow(w.syntax).endswith('output "<" + text(a) + ">" as x\n')


@pytest.mark.parametrize(("hole", "sign"), [({"conversion": "r"}, "!r"), ({"format_spec": ">10"}, ":>10")])
def test_a_template_string_with_a_format(hole: dict[str, str], sign: str):
    @hx.workflow
    def w(a: str):
        return hx.output(x=main(user=Template(Interpolation(a, **hole))))

    assert failure(w).message == f"a value of a workflow takes no format, found `{sign}`"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="t-strings came with Python 3.14")
def test_a_real_template_string():
    module = ModuleType("t_string")
    exec("def make(a, b, r): return t'<{a}> {b}'", module.__dict__)
    assert prompt_of(module.make) == (Text(text="<"), A, Text(text="> "), B)
