"""Reading workflow text: the forms of the language, names, line breaks, and texts that are no workflows."""

from __future__ import annotations

import random
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import golden
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.errors import SourceErrors
from helix.expr import Binary, Call, Expr, Field, Index, ListExpr, Literal, Name, RecordExpr, Unary
from helix.grammar.parse import parse
from helix.syntax import Comment, If, Let, Llm, MessagePart, Output, Step, ToolDecl, UnorderedPart, Workflow
from helix.templates.template import Slot, Template, Text
from helix.types import TEXT, Choice, Record

NAMES = (
    "history", "text", "part", "limit", "model", "output", "system", "user", "assistant", "sort", "group", "list",
    "choice", "workflow", "role", "from", "as", "by", "to", "up", "until", "when", "let", "tool", "function", "use",
    "repeat", "keep", "spread", "yield", "unordered", "asc", "desc", "effects", "off", "agent", "int", "bool", "len",
    "join", "default", "rows", "loop", "self", "table", "python", "sql", "_", "ชื่อลูกค้า", "naïve", "票",
)  # fmt: skip
PLACES = {
    "an input": "workflow w(NAME: text)\noutput NAME\n",
    "an input of several": "workflow w(\n  NAME: text\n  b: int = 3\n  c: text\n)\nx = NAME\noutput x\n",
    "a step": "workflow w(a: text)\nNAME = a\nb = NAME + a\noutput NAME\n",
    "an LLM step": 'workflow w(a: text)\nNAME = llm { user "{{ a }}" }\nb = NAME == 1\noutput NAME\n',
    "a step after others": "workflow w(a: json)\nx = a\nNAME = x\ny = NAME\nNAME2 = a == 1\nNAME3 = a\noutput y\n",
    "a field": "workflow w(a: json)\nb = a.NAME\nc = [a.NAME.NAME, a]\nd = a\n  .NAME\noutput b.NAME\n",
    "a loop variable": "workflow w(a: json)\nx = for NAME in a {\n  y = NAME\n yield NAME }\noutput x\n",
    "a list of a loop": "workflow w(NAME: json)\nx = for i in NAME {\n  y = NAME\n yield NAME\n}\noutput x\n",
    "a condition": "workflow w(NAME: bool)\nif NAME { x = 1 } else if NAME and NAME { x = 2 }\noutput x\n",
    "behind when": "workflow w(NAME: bool)\nx = 1 when NAME\nkeep when NAME\nkeep when not NAME\noutput NAME\n",
    "a spread": "workflow w(a: json, NAME: json)\nspread NAME as b\nspread a as NAME\noutput NAME\n",
    "a sort key": "workflow w(NAME: text, a: text)\nsort by NAME\nsort by NAME desc, a\nlimit NAME\noutput NAME\n",
    "a group key": "workflow w(NAME: text, b: text)\ngroup by NAME, b { n = len(rows) }\noutput NAME, n\n",
    "a column": "workflow w(a: text, NAME: text)\noutput a as NAME, NAME as NAME, NAME as b\n",
    "a field of a record": "workflow w(a: text)\nx = { NAME: a, b: 1 }\ny = {\n  b: 1\n  NAME: a\n}\noutput x\n",
    "a field of a type": 'workflow w(a: text)\nx = llm -> { b: int\n NAME: text } { user "a" }\noutput x\n',
    "a model": 'workflow w()\nmodel NAME { name: "x" }\nx = llm NAME(a: 0) -> text { user "a" }\noutput x\n',
    "an option": 'workflow w(a: text)\nmodel m {\n  name: "x"\n  NAME: 1\n}\noutput a\n',
    "a tool": 'workflow w(a: text)\ntool NAME(NAME: text) -> json from python "a:b"\nx = NAME(NAME: a)\noutput x\n',
    "a function": 'workflow w()\nfunction NAME(a: text) -> json from python "a:b"\nx = NAME(1) + NAME(2)\noutput x\n',
    "a used workflow": 'workflow w(a: text)\nuse "x.helix" as NAME\nx = NAME(NAME: a)\noutput x\n',
    "a constant": "workflow w(a: text)\nlet NAME = 3\nx = NAME\noutput x\n",
    "the workflow": "workflow NAME(a: text)\noutput a\n",
    "a history": 'workflow w(NAME: json)\nx = llm {\n history NAME\n user "a"\n}\noutput x\n',
    "a slot": 'workflow w(NAME: json)\nx = llm { user "{{ NAME }} {{ NAME.NAME | json }}" }\noutput x\n',
    "an item of a list": "workflow w(NAME: json)\nx = [\n NAME\n NAME\n 3\n NAME, 1]\noutput x\n",
    "an argument": "workflow w(NAME: json)\nx = f(\n NAME\n NAME\n b: NAME\n NAME: 1)\noutput x\n",
    "an index": "workflow w(NAME: json)\nx = NAME[0]\ny = a[NAME]\noutput x\n",
    "a repeat": "workflow w(a: json)\nrepeat up to 3 until NAME.ok {\n NAME = 1\n}\noutput NAME\n",
    "operands": "workflow w(NAME: json)\nx = NAME == NAME or not NAME not in NAME\ny = -NAME * NAME - NAME\noutput x\n",
}


@pytest.mark.parametrize("place", PLACES)
def test_words_of_the_language_are_names_too(place: str) -> None:
    plain = parse(PLACES[place].replace("NAME", "plain"))
    for name in NAMES:
        found = parse(PLACES[place].replace("NAME", name))
        assert repr(found) == repr(plain).replace("plain", name), name


def value(text: str) -> Expr:
    """The expression of the one step of a workflow."""
    (step,) = parse(f"workflow w()\nx = {text}\n").statements
    assert isinstance(step, Step)
    assert isinstance(step.value, Expr)
    return step.value


A, B = Name(name="a"), Name(name="b")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a ==\n  b", "a == b"),
        ("a\n  == b", "a == b"),
        ("a # why\n  # this\n\n  == b", "a == b"),
        ("a\n  and b\n  or not\n    a", "a and b or not a"),
        ("a\n  not in b", "a not in b"),
        ("a\n  in b", "a in b"),
        ("a\n  + b\n  - a\n  * b\n  / a", "a + b - a * b / a"),
        ("a\n  .b\n  .c", "a.b.c"),
        ("(\n  a\n)", "(a)"),
        ("[\n  a\n  b\n]", "[a, b]"),
        ("[ a, b, ]", "[a, b]"),
        ("[\n  a,\n  b,\n]", "[a, b]"),
        ("[\n  a\n  , b\n]", "[a, b]"),
        ("[\n  a # one\n  # two\n\n  b\n  # three\n]", "[a, b]"),
        ("[a\n -1\n]", "[a, -1]"),
        ("[a\n - 1\n]", "[a - 1]"),
        ("{ a: 1\n  b: 2 }", "{ a: 1, b: 2 }"),
        ("{\n  a:\n    1,\n}", "{ a: 1 }"),
        ('{ "a": 1 }', "{ a: 1 }"),
        ("f(\n  a\n  b\n)", "f(a, b)"),
        ("f(a, b: 1,)", "f(a, b: 1)"),
        ("f(a, b = 1)", "f(a, b: 1)"),
        ("f(\n  a,\n  b:\n    1\n)", "f(a, b: 1)"),
        ('a["b"]', "a.b"),
        ("- 1", "-1"),
        ("\ta\f+\r b", "a + b"),
    ],
)
def test_line_breaks_and_commas(text: str, same: str) -> None:
    assert value(text) == value(same)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a or b and a", Binary(op="or", left=A, right=Binary(op="and", left=B, right=A))),
        ("not a == b", Unary(op="not", operand=Binary(op="==", left=A, right=B))),
        ("a - b - a", Binary(op="-", left=Binary(op="-", left=A, right=B), right=A)),
        ("a + b * a", Binary(op="+", left=A, right=Binary(op="*", left=B, right=A))),
        ("-a * b", Binary(op="*", left=Unary(op="-", operand=A), right=B)),
        ("-a.b", Unary(op="-", operand=Field(base=A, name="b"))),
        ("-2", Literal(value=-2)),
        ("-true", Unary(op="-", operand=Literal(value=True))),
        ("--2", Literal(value=2)),
        ("a[-1]", Index(base=A, index=Literal(value=-1))),
        ("f(a)[0].b", Field(base=Index(base=Call(function="f", args=(A,)), index=Literal(value=0)), name="b")),
        ("[1, [], {}]", ListExpr(items=(Literal(value=1), ListExpr(items=()), RecordExpr(fields=())))),
        ('"{{ a }}"', Literal(value="{{ a }}")),
        ('"\\u{e44}\\n\\t\\r\\"\\\\\\/"', Literal(value='ไ\n\t\r"\\/')),
        ('"""C:\\data\\n"""', Literal(value="C:\\data\\n")),
        ('"""\n    a\n      b\n  """', Literal(value="a\n  b")),
        ('"""a\n    b"""', Literal(value="a\nb")),
        ('""""quoted" """', Literal(value='"quoted" ')),
        ("1.50", Literal(value=1.5)),
        ("1e3", Literal(value=1000.0)),
        ('replace(a, "{{", "}}")', Call(function="replace", args=(A, Literal(value="{{"), Literal(value="}}")))),
    ],
)
def test_expressions(text: str, tree: Expr) -> None:
    found = value(text)
    assert repr(found) == repr(tree)


def message(text: str) -> Template:
    """The template of the one message of the one step."""
    (step,) = parse(f"workflow w()\nx = llm {{ user {text} }}\n").statements
    assert isinstance(step, Step)
    assert isinstance(step.value, Llm)
    (part,) = step.value.parts
    assert isinstance(part, MessagePart)
    return part.content


def test_quotes_of_both_kinds_stand_in_slots() -> None:
    assert message('"{{ a | join("\\n") }}"') == message("\"{{ a | join('\\n') }}\"")
    assert message('"{{ a["b"] }} {{ f("x", \'"\') }}"') == message('"""{{ a.b }} {{ f("x", \'"\') }}"""')
    assert message("\"it's {{ a }}'s\"").segments == (Text(text="it's "), Slot(value=A), Text(text="'s"))


def test_the_place_of_a_slot_is_known() -> None:
    text = 'workflow w()\nx = llm {\n  user """\n    Hi\n\t\\ {{ name }}\n  """\n}\ny = llm { user "\\t{{ name }}" }\n'
    spans = [
        part.content.segments[1].value.span
        for step in parse(text).statements
        if isinstance(step, Step) and isinstance(step.value, Llm)
        for part in step.value.parts
        if isinstance(part, MessagePart) and isinstance(part.content.segments[1], Slot)
    ]
    assert [(span.line, span.column, span.end_column) for span in spans if span] == [(5, 7, 11), (8, 22, 26)]


def test_statements() -> None:
    workflow = parse(
        'workflow w(a: text, b: choice["x"]? = null)\n'
        'tool t(x: { y: text }) -> json from sql "sqlite:a"\n  effects read, cost 300ms\n'
        "let c = 1, d = 2\n"
        "if a\n  == b { e = 1 }\nelse if b { e = 2 }\nelse\n{ e = 3 }\n"
        'f = llm { unordered { part "p" } }\n  when a\n'
        "output a,\n  b\n  as c\n"
    )
    tool, let, step, branch, llm, output = workflow.statements
    assert isinstance(tool, ToolDecl)
    assert tool.params[0].type == Record((("y", TEXT),))
    assert [(trait.name, trait.value) for trait in tool.traits] == [
        ("effects", Name(name="read")),
        ("cost", Literal(value="300ms")),
    ]
    assert isinstance(let, Let)
    assert isinstance(step, Step)
    assert isinstance(branch, If)
    assert len(branch.arms) == 2
    assert isinstance(llm, Step)
    assert llm.when == A
    assert isinstance(llm.value, Llm)
    assert isinstance(llm.value.parts[0], UnorderedPart)
    assert isinstance(output, Output)
    assert [item.name for item in output.items] == ["a", "c"]
    assert str(workflow.params[1].type) == 'choice["x"]?'
    assert workflow.params[1].type != Choice(("x",))


def test_comments_are_kept_with_their_lines() -> None:
    text = (
        "# top\n\nworkflow w(  # open\n  a: text  # a\n  # end\n)\n# x\nx = a  # one\n  + a\n"
        '  # two\ny = llm { user """\n# none\n""" } # three\nz = "# none" # four\noutput x#five'
    )
    assert parse(text).comments == (
        Comment(line=1, text="# top", alone=True),
        Comment(line=3, text="# open", alone=False),
        Comment(line=4, text="# a", alone=False),
        Comment(line=5, text="# end", alone=True),
        Comment(line=7, text="# x", alone=True),
        Comment(line=8, text="# one", alone=False),
        Comment(line=10, text="# two", alone=True),
        Comment(line=13, text="# three", alone=False),
        Comment(line=14, text="# four", alone=False),
        Comment(line=15, text="#five", alone=False),
    )


def test_line_ends_and_a_byte_order_mark_make_no_difference() -> None:
    text = 'workflow w(a: text)\nx = llm { user """\n  a\n  b\n""" }\noutput x\n'
    windows = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    assert parse(windows) == parse(text) == parse(text.rstrip("\n"))


# --- texts that are no workflows ----------------------------------------------------------------------------------

SEEDS = [
    record.before
    for folder in ("fixtures", "errors")
    for path in sorted(Path(__file__).with_name(folder).glob("*.txt"))
    for record in golden.records(path)
]
PIECES = (
    "{{", "}}", "{%", "%}", "{% if a %}", "{% endif %}", "{% for a in b %}", "{% endfor %}", "{% raw %}", '"""',
    '"', "'", "\\", "\\u{41}", "(", ")", "[", "]", "{", "}", "\r", "\f", "\u2028", "\ud800", "\0", "é", "ก",
    "\u0e34", "🚀", "²", "١", "0x", "1e5", "#", "\n", "\n\n", " ", "->", "==", "=", ",", ".", "-", "llm", "for", "in",
    "not", "when", "yield",
)  # fmt: skip
_TOKEN = re.compile(r'"""|\w+|\s+|.', re.DOTALL)


def reads_or_tells(text: str | bytes) -> Workflow | None:
    """Reads a text; whatever it is, it is a workflow or its mistakes are told."""
    try:
        return parse(text, "fuzz.helix")
    except SourceErrors as raised:
        mistakes = raised
    assert mistakes.errors
    assert mistakes.render().startswith("error: ")
    assert all(error.span is None or min(error.span.line, error.span.column) >= 1 for error in mistakes.errors)
    return None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_told(data: bytes) -> None:
    reads_or_tells(data)
    reads_or_tells(b"workflow w(a: text)\n" + data)


@given(st.text(max_size=100), st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_text_is_read_or_told(text: str, pieces: str) -> None:
    reads_or_tells(text)
    reads_or_tells(f"workflow w(a: text)\nx = {text}\n{pieces}\n")
    reads_or_tells(f'workflow w(a: text)\nx = llm {{ user """{pieces}{text}""" user "{pieces}" }}\noutput x\n')


@given(st.randoms(use_true_random=False), st.sampled_from(SEEDS))
def test_mutated_workflows_are_read_or_told(chance: random.Random, seed: str) -> None:
    tokens = _TOKEN.findall(seed)
    for _ in range(chance.choice([1, 1, 2, 4])):
        at = chance.randrange(len(tokens) + 1)
        match chance.randrange(4):
            case 0:
                del tokens[at : at + 1]
            case 1:
                tokens.insert(at, chance.choice(PIECES))
            case 2:
                other = chance.randrange(len(tokens) + 1)
                tokens[at:at] = tokens[min(at, other) : max(at, other)][:40]
            case _:
                tokens = tokens[:at] or ["x"]
    reads_or_tells("".join(tokens))


# Each text grows with a number; none may cost more than its length.
LARGE: dict[str, Callable[[int], str]] = {
    "open slots": lambda n: 'x = llm { user "' + "{{" * n + '" }',
    "open slots in a text": lambda n: 'x = "' + "{{" * n + '"',
    "quotes and open slots": lambda n: "x = llm { user " + '"{{' * n,
    "quotes in an open slot": lambda n: 'x = llm { user "{{ ' + "'" * n + '" }',
    "escaped quotes in an open slot": lambda n: 'x = llm { user """{{ ' + "\\'" * n + '""" }',
    "braces": lambda n: 'x = llm { user """' + "{ " * n + '""" }',
    "number signs": lambda n: "# " * n,
    "lines of comments": lambda n: "#\n" * n,
    "comments before a line that carries on": lambda n: "x = a\n" + "# c\n" * n + "  and a",
    "comments in an expression": lambda n: "x = a and\n" + "# c\n" * n + "  a",
    "empty lines": lambda n: "x = a" + " \n" * n + "  and a",
    "one long text": lambda n: 'x = "' + "a" * 10 * n + '"',
    "one open text": lambda n: 'x = "' + "a" * 10 * n,
    "a long block": lambda n: 'x = """\n' + "a\n" * n + '"""',
    "backslashes": lambda n: 'x = "' + "\\" * n + '"',
    "open brackets": lambda n: "x = " + "(" * n,
    "nested lists": lambda n: "x = " + "[" * n + "]" * n,
    "operators": lambda n: "x = a" + " + a" * n,
    "a long list": lambda n: "x = [" + "a, " * n + "]",
    "a large record": lambda n: "x = { " + ", ".join(f"f{i}: a" for i in range(n // 10)) + " }",
    "many labels": lambda n: "x = llm -> choice[" + ", ".join(f'"{i}"' for i in range(n // 10)) + '] { user "a" }',
    "many steps": lambda n: "x = a\n" * (n // 10),
    "many mistakes": lambda n: "x = a a\n" * (n // 10),
    "a mistake at the end": lambda n: "x = a\n" * (n // 10) + "x = a a",
    "digits": lambda n: "x = " + "1" * n + "a",
    "a long name": lambda n: "x" * n + " y",
    "tags": lambda n: 'x = llm { user """' + "{% if a %}" * (n // 10) + '""" }',
    "nested tags": lambda n: 'x = llm { user """' + "{% if a %}" * (n // 20) + "{% endif %}" * (n // 20) + '""" }',
    "raw blocks": lambda n: 'x = llm { user """' + "{% raw %}{{{% endraw %}" * (n // 20) + '""" }',
    "operators in a slot": lambda n: 'x = llm { user "{{ a' + " + a" * (n // 10) + ' }}" }',
    "brackets in a slot": lambda n: 'x = llm { user "{{ ' + "(" * n + "a" + ")" * n + ' }}" }',
    "open tags": lambda n: 'x = llm { user """' + "{%" * n + '""" }',
    "equals signs": lambda n: "x " + "=" * n,
}


@pytest.mark.parametrize("kind", LARGE)
def test_large_texts_cost_time_in_proportion(kind: str) -> None:
    head = "workflow w(a: text)\n"
    reads_or_tells(head + LARGE[kind](10))
    start = time.process_time()
    reads_or_tells(head + LARGE[kind](10_000))
    # Quadratic time would be minutes.
    assert time.process_time() - start < 5


def test_reading_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in SEEDS:
            reads_or_tells(seed)
