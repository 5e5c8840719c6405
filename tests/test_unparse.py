"""Expressions and templates as text: they read back as they were, with no parentheses too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from strategies import expressions, templates

from helix.expr import Arg, Binary, Expr, Field, Literal, Name, walk
from helix.grammar.parse import parse
from helix.syntax import Let
from helix.templates.template import Slot, Template, parse_template, template
from helix.unparse import is_duration, jinja_expr, unparse_expr, unparse_template


def read(text: str) -> Expr:
    """An expression of the workflow language."""
    (let,) = parse(f"workflow w()\nlet x = {text}\n").statements
    assert isinstance(let, Let)
    return let.value


@given(expressions(10))
def test_an_expression_reads_back(expr: Expr) -> None:
    text = unparse_expr(expr)
    assert "\n" not in text
    assert repr(read(text)) == repr(expr)


@given(expressions(10))
def test_an_expression_reads_back_from_a_slot(expr: Expr) -> None:
    slot = template(Slot(value=expr))
    assert "\n" not in jinja_expr(expr)
    assert repr(parse_template(f"{{{{ {jinja_expr(expr)} }}}}")) == repr(slot)


@given(templates())
def test_a_template_reads_back(subject: Template) -> None:
    assert parse_template(unparse_template(subject)) == subject


@pytest.mark.parametrize(
    ("text", "slot"),
    [
        ("a + b * 2", "a + b * 2"),
        ("(a + b) * 2", "(a + b) * 2"),
        ("a - (b - 2)", "a - (b - 2)"),
        ("a or b and not a == b", "a or b and not a == b"),
        ("(a or b) and (not a) == b", "(a or b) and (not a) == b"),
        ("(a == b) == (a < b)", "(a == b) == (a < b)"),
        ("-a.b[0]", "-a.b[0]"),
        ("-(a + b)", "-(a + b)"),
        ("a * -b", "a * -b"),
        ("(-1).x", "(-1).x"),
        ("a not in [1, 2.5, -3]", "a not in [1, 2.5, -3]"),
        ("{ a: 1, b: { c: null } }", '{ "a": 1, "b": { "c": null } }'),
        ('{ "a b": true }', '{ "a b": true }'),
        ("{}", "{}"),
        ('a["b c"].d', 'a["b c"].d'),
        ('a["__class__"]', 'a["__class__"]'),
        ("len(a)", "a | len"),
        ('join(a, ", ")', 'a | join(", ")'),
        ("len(a) + len(b)", "a | len + b | len"),
        ("len(a + b)", "(a + b) | len"),
        ("len(-a)", "(-a) | len"),
        ("-len(a)", "-(a | len)"),
        ("not len(a)", "not a | len"),
        ("upper(trim(a)).b", "(a | trim | upper).b"),
        ("join(a, separator: b)", "join(a, separator=b)"),
        ("score(a, 1, b: 2)", "score(a, 1, b=2)"),
        ("f()", "f()"),
        ('"say \\"hi\\""', "'say \"hi\"'"),
        ('"it\'s"', '"it\'s"'),
        ('"\\"\'"', '"\\x22\'"'),
        ('"\\n\\t\\r\\\\\\u{7}"', '"\\n\\t\\r\\\\\\x07"'),
        ('"{{ }} {%"', '"{{ }} {%"'),
        ("1e300", "1e300"),
    ],
)
def test_both_languages(text: str, slot: str) -> None:
    expr = read(text)
    assert unparse_expr(expr) == text.replace("1e300", "1e+300")
    assert jinja_expr(expr) == slot.replace("1e300", "1e+300")


def test_every_pair_of_parentheses_is_needed() -> None:
    operators = ["or", "and", "==", "<", "in", "not in", "+", "-", "*", "/"]
    a = Name(name="a")
    for outer in operators:
        for inner in operators:
            for expr in (
                Binary(op=outer, left=Binary(op=inner, left=a, right=a), right=a),
                Binary(op=outer, left=a, right=Binary(op=inner, left=a, right=a)),
            ):
                text = unparse_expr(expr)
                assert jinja_expr(expr) == text
                assert read(text) == expr
                if "(" in text:
                    try:
                        bare = read(text.replace("(", "").replace(")", ""))
                    except Exception:
                        continue
                    assert bare != expr


def test_a_bound_input_shows_as_its_position() -> None:
    assert unparse_expr(Field(base=Arg(index=3), name="x")) == "$3.x"
    assert list(walk(Arg(index=3))) == [Arg(index=3)]


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{{a}}", "{{ a }}"),
        ("a {{- b -}} c", "a{{ b }}c"),
        ("{% raw %}{{ a }}{% endraw %}", "{{ '{{' }} a }}"),
        ("{{ '{{{%' }}", "{{ '{{{%' }}"),
        ("{{ '{' }}{{ a }}", "{{ '{' }}{{ a }}"),
        ("{{ '{{' }}{{ a }}", "{{ '{{' }}{{ a }}"),
        ("{{ '{' }}{% if a %}{% endif %}", "{{ '{' }}{% if a %}{% endif %}"),
        ("{{ '{' }}% {", "{{ '{%' }} {"),
        ("{ {{ a }} }", "{ {{ a }} }"),
        ("{{ a }}}", "{{ a }}}"),
        ("100% {# no #}", "100% {# no #}"),
    ],
)
def test_templates_as_their_authors_write_them(source: str, shown: str) -> None:
    assert unparse_template(parse_template(source)) == shown


def test_durations() -> None:
    assert all(is_duration(text) for text in ("300ms", "2s", "5m", "1.5h", "0s"))
    assert not any(is_duration(text) for text in ("300", "ms", "-2s", "2 s", "2d", "2s ", "\u0663s", "1.s", ""))
    assert unparse_expr(Literal(value="2s")) == '"2s"'
