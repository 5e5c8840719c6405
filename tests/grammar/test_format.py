"""Printing trees that were never text, and texts that are hard to write down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from strategies import templates, texts

from helix.expr import Binary, Literal, Name
from helix.grammar.format import format_workflow
from helix.grammar.layout import WIDTH
from helix.grammar.parse import parse
from helix.grammar.strings import block_value, template_value
from helix.grammar.texts import block_token, quote_template, template_token
from helix.span import Source, Span
from helix.syntax import Comment, Let, Llm, MessagePart, ModelDecl, Option, Output, OutputItem, Param, Step, Workflow
from helix.templates.template import Slot, Text, parse_template, template
from helix.types import TEXT

SOURCE = Source(name="t", text="")


def _workflow(span: Span | None) -> Workflow:
    ask = Llm(
        parts=(MessagePart(role="user", content=template(Text(text="Hi "), Slot(value=Name(name="a")))),), span=span
    )
    return Workflow(
        name="w",
        params=(Param(name="a", type=TEXT, span=span),),
        statements=(
            Let(name="tone", value=Literal(value="plain"), span=span),
            Let(name="other", value=Literal(value=1), span=span),
            ModelDecl(name="m", options=(Option(name="name", value=Literal(value="n")),), span=span),
            Step(name="x", value=ask, span=span),
            Step(name="y", value=Name(name="x"), span=span),
            Output(items=(OutputItem(value=Name(name="y"), name="y"),), span=span),
        ),
        span=span,
    )


@pytest.mark.parametrize(
    "span", [None, Span(source=Source(name="program.py"), line=9, column=5, end_line=9, end_column=20)]
)
def test_a_tree_from_python_gets_blank_lines_after_its_declarations(span: Span | None) -> None:
    workflow = _workflow(span)
    text = format_workflow(workflow)
    assert text == (
        "workflow w(a: text)\n"
        "\n"
        'let tone = "plain"\n'
        "let other = 1\n"
        "\n"
        "model m {\n"
        '  name: "n"\n'
        "}\n"
        "\n"
        'x = llm { user "Hi {{ a }}" }\n'
        "y = x\n"
        "output y\n"
    )
    assert parse(text) == workflow
    assert format_workflow(parse(text)) == text


def test_a_tree_whose_text_has_changed_keeps_its_comments() -> None:
    workflow = parse("# top\nworkflow w(a: text)\nx = a  # first\n# before y\ny = x\noutput y  # last\n")
    fewer = replace(workflow, statements=workflow.statements[1:])
    assert [text in format_workflow(fewer) for text in ("# top", "# first", "# before y", "# last")] == [True] * 4
    added = replace(workflow, statements=(*workflow.statements, Step(name="z", value=Name(name="y"))))
    assert [comment.text for comment in parse(format_workflow(added)).comments] == [
        comment.text for comment in workflow.comments
    ]


def test_comments_of_a_tree_without_a_text_go_to_the_top() -> None:
    workflow = Workflow(name="w", params=(), statements=(), comments=(Comment(line=7, text="# kept", alone=False),))
    assert format_workflow(workflow) == "# kept\nworkflow w()\n"


def test_lines_keep_to_the_width_where_they_can_be_broken() -> None:
    long = ", ".join(f'"label number {i}"' for i in range(20))
    text = format_workflow(
        parse(
            f"workflow w(a: text, b: list[text] = [{long}])\n"
            f"let c = [{long}]\n"
            f'x = llm -> choice[{long}] {{ user "a" }}\n'
            f"y = f(a, [{long}])\n"
            f"output {', '.join(f'column_{i}' for i in range(30))}\n"
        )
    )
    assert max(len(line) for line in text.splitlines()) <= WIDTH


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("plain", '"plain"'),
        ("", '""'),
        ('"hi" he said', '""""hi" he said"""'),
        ("C:\\data", '"""C:\\data"""'),
        ('a "b" {{ c | join("\\n") }}.', '"""a "b" {{ c | join("\\n") }}."""'),
        ("a\tb", '"a\\tb"'),
        ("a\rb", '"a\\rb"'),
        ("one\ntwo", '"""\n  one\n  two\n"""'),
        ("one\n\ntwo\n", '"""\n  one\n\n  two\n\n"""'),
        ("\none", '"""\n\n  one\n"""'),
        ("one\n  two", '"""\n  one\n    two\n"""'),
        ("  one\n  two", '"  one\\n  two"'),
        ("one\n \ntwo", '"one\\n \\ntwo"'),
        ("\n", '"\\n"'),
        ('one\n"""', '"one\\n\\"\\"\\""'),
        ("one\r\ntwo", '"one\\r\\ntwo"'),
        ("{{ a }}", '"{{ a }}"'),
        ('{{ a["b c"] }} "c" \u200b', '"{{ a["b c"] }} \\"c\\" \\u{200b}"'),
        ("{% if a\n%}b{% endif %}", '"""\n  {% if a\n  %}b{% endif %}\n"""'),
        ("ไทย 👩\u200d🚀 票\u3000", '"ไทย 👩\u200d🚀 票\u3000"'),
    ],
)
def test_texts_are_quoted_as_plainly_as_they_can_be(text: str, token: str) -> None:
    subject = parse_template(text)
    assert template_token(subject, 0) == token
    (step,) = parse(f"workflow w()\nx = llm {{ user {token} }}\n").statements
    assert isinstance(step, Step)
    assert isinstance(step.value, Llm)
    part: Any = step.value.parts[0]
    assert part.content == subject


def test_a_slot_with_signs_that_need_escapes_is_no_slot_for_the_lexer() -> None:
    assert quote_template('{{ f("\x07") }}') == '"{\\u{7b} f(\\"\\u{7}\\") }}"'
    assert quote_template('{{ a\n| f("b") }}') == '"{\\u{7b} a\\n| f(\\"b\\") }}"'


@given(texts())
def test_any_text_goes_through_quotes_and_blocks(text: str) -> None:
    quoted = quote_template(text)
    assert "\n" not in quoted
    assert template_value(quoted, 1, 1, SOURCE)[0] == text
    for depth in (0, 1, 4):
        block = block_token(text, depth)
        assert block is None or block_value(block, 1, 1)[0] == text


@given(templates())
def test_any_template_goes_through_its_token(subject: Any) -> None:
    (step,) = parse(f"workflow w()\nx = llm {{ user {template_token(subject, 3)} }}\n").statements
    assert isinstance(step, Step)
    assert isinstance(step.value, Llm)
    part: Any = step.value.parts[0]
    assert part.content == subject


def test_an_operand_chain_keeps_its_grouping() -> None:
    a, b = Name(name="a"), Name(name="b")
    left = Binary(op="-", left=Binary(op="-", left=a, right=b), right=a)
    right = Binary(op="-", left=a, right=Binary(op="-", left=b, right=a))
    shown = [
        format_workflow(Workflow(name="w", params=(), statements=(Let(name="x", value=e),))) for e in (left, right)
    ]
    assert [text.splitlines()[2] for text in shown] == ["let x = a - b - a", "let x = a - (b - a)"]
