"""Prompts: bytes kept, values put in as they are, and nothing reachable but the values."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import texts

from helix.errors import TemplateError
from helix.expr import Arg, Binary, Call, Expr, Field, Index, ListExpr, Literal, Name, RecordExpr, Unary
from helix.functions import ExpressionError
from helix.templates.template import (
    Block,
    Slot,
    Template,
    Text,
    map_template,
    parse_template,
    renderer,
    template,
    text_source,
)


def render(source: str | Template, **values: Any) -> str:
    """A template rendered for some values."""
    subject = parse_template(source) if isinstance(source, str) else source
    names = sorted(values)

    def position(leaf: Expr) -> Expr:
        return Arg(index=names.index(leaf.name)) if isinstance(leaf, Name) else leaf

    return renderer(map_template(subject, position))([values[name] for name in names])


def refused(source: str) -> TemplateError:
    """The error of a template that is none."""
    with pytest.raises(TemplateError) as raised:
        parse_template(source, text_source("t", source))
    return raised.value


A, B = Name(name="a"), Name(name="b")

# --- text ---------------------------------------------------------------------------------------------------------

PLAIN = [
    "",
    " ",
    "\n\n  text \n",
    "{ a } {a} }} %} { % } {# no comment #} #} {#",
    '{"a": {"b": [1, 2]}, "c": "%s %(a)s {} ${HOME} $a"}',
    "--- <|im_start|>system<|im_end|> [INST] <s>",
    "back\\slash \\n \\{ \\\\ C:\\data",
    "\r\n carriage \r returns \n\r",
    "ไทย ทดสอบ 票 naïve e\u0301 \u00e9 \u200d \u202e \ufeff",
    "👩\u200d🚀 \U0001f3f4\U000e0067",
    "\x00\x07\x1b[31m\x7f\x85\u2028\u2029\ue000\ue001",
    "# line\n## statement\n% for a in b\n%% x",
]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_is_kept_byte_for_byte(text: str) -> None:
    assert parse_template(text).segments == ((Text(text=text),) if text else ())
    assert render(text) == text
    assert render(text + "{{ a }}" + text, a="x") == text + "x" + text
    assert render("{% if a %}" + text + "{% endif %}", a=True) == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_value_is_put_in_as_it_is(value: str) -> None:
    assert render("<{{ a }}>", a=value) == f"<{value}>"
    assert render("{% for b in a %}<{{ b }}>{% endfor %}", a=[value, value]) == f"<{value}><{value}>"
    assert render("{{ a | upper | lower | text }}", a=value) == value.upper().lower()


@pytest.mark.parametrize(
    "value",
    ["{{ b }}", "{% if b %}", "{{ 7 * 7 }}", "{# x #}", "{% raw %}", "%s", "{0}", "${b}", "\\u0041", "{{", "}}"],
)
def test_a_value_that_looks_like_a_template_stays_text(value: str) -> None:
    assert render("{{ a }}{{ b }}", a=value, b="secret") == f"{value}secret"
    assert render("{{ a | join(b) }}", a=["x", "y"], b=value) == f"x{value}y"
    assert render("{% if b %}{{ a }}{% endif %}", a=value, b="secret") == value


@given(texts())
def test_text_that_was_split_is_one_again(text: str) -> None:
    pieces = [Text(text=char) for char in text]
    assert template(*pieces) == template(Text(text=text))
    assert template(Text(text=""), Slot(value=A), Text(text="")).segments == (Slot(value=A),)


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-7, "-7"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e300, "1e+300"),
        (0.1, "0.1"),
        (10**30, "1" + "0" * 30),
        ("", ""),
        ("é", "é"),
        ([], "[]"),
        ({}, "{}"),
        ([1, "a", None, True, [2.5]], '[1,"a",null,true,[2.5]]'),
        ({"b": 1, "a": {"d": "é", "c": '"'}}, '{"a":{"c":"\\"","d":"é"},"b":1}'),
    ],
)
def test_values_are_shown_as_json(value: Any, shown: str) -> None:
    assert render("{{ a }}", a=value) == shown
    assert render("{% if true %}{{ a }}{% endif %}", a=value) == shown


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{{ 1 + 1 }}", "2"),
        ("{{ r.n }}", ""),
        ("{{ r.n.deeper }}", ""),
        ("{{ r['two words'] }}", "2"),
        ("{{ xs[0] }}{{ xs[-1] }}", "13"),
        ("{{ xs | join(', ') }}", "1, 2, 3"),
        ("{{ xs | join(d='-') }}", "1-2-3"),
        ("{{ xs | length }}{{ xs | count }}{{ len(xs) }}", "333"),
        ("{{ r.missing | default('none') }}", "none"),
        ("{{ r.n | default('none') }}{{ r.n | d('none') }}", "nonenone"),
        (
            "{{ '' | default('none') }}{{ '' | default('none', true) }}{{ '' | default('none', boolean=true) }}",
            "nonenone",
        ),
        ("{{ r.missing.deeper | default('none') }}", "none"),
        ("{{ xs[7] | default('none') }}", "none"),
        ("{{ xs | tojson }} {{ 'a' | string }}", "[1,2,3] a"),
        ("{{ (1 + 2) * 3 }} {{ 7 / 2 }} {{ -xs[0] }}", "9 3.5 -1"),
        ("{{ 2 in xs }} {{ 4 not in xs }} {{ not xs }}", "true true false"),
        ("{{ true == 1 }} {{ 1 == 1.0 }} {{ r.n < 1 }}", "false true false"),
        ("{{ r.n + 1 }}|", "|"),
        ("{{ xs and 'yes' }} {{ [] or 'no' }}", "yes no"),
        ("{{ {'b': xs[0], 'a': 2} }} {{ [xs[0], 'b'] }}", '{"a":2,"b":1} [1,"b"]'),
        ("{{ null }}{{ none }}{{ None }}|{{ true }}{{ False }}", "|truefalse"),
        ("{{ 'a' if xs else 'b' }}", "a"),
        ("{{ xs | map('text') | join('+') }}", "1+2+3"),
        ("{{ ' a b ' | trim | upper | replace('A', 'x') }}", "x B"),
        ("{{ xs | first }}{{ xs | last }}{{ xs | max }}{{ xs | min }}{{ xs | sum }}", "13316"),
        ("{% for x in xs %}{{ loop.index }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", "1:1, 2:2, 3:3"),
        ("{% for x in xs if x > 1 %}{{ x }}{% else %}none{% endfor %}", "23"),
        ("{% for k, v in r | items %}{{ k }}={{ v }};{% endfor %}", "n=;two words=2;"),
        ("{% for k, v in r | dictsort %}{{ k }};{% endfor %}", "n;two words;"),
        ("{% if 1 < 2 < 3 %}y{% endif %}{% if 1 < 3 < 2 %}n{% endif %}", "y"),
        ("{% if true == 1 %}n{% elif r.n < 1 %}n{% else %}y{% endif %}", "y"),
        ("{% if r.n is none %}y{% endif %}{% if r.missing is defined %}n{% endif %}", "y"),
        ("{% if xs %}{% set first = xs[0] %}{{ first }}{% endif %}", "1"),
        ("{% for g in xs | batch(2) %}{{ g | join('') }};{% endfor %}", "12;3;"),
        ("{% if xs %}{{ 7 // 2 }} {{ 7 % 2 }} {{ xs + [4] }}{% endif %}", "3 1 [1,2,3,4]"),
    ],
)
def test_slots_and_blocks(source: str, shown: str) -> None:
    assert render(source, xs=[1, 2, 3], r={"n": None, "two words": 2}) == shown


# --- what is an expression, what stays a block --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ a }}", A),
        ("{{a}}", A),
        ("{{-a-}}", A),
        ("{{\n\ta\n}}", A),
        ("{{ a.b.c }}", Field(base=Field(base=A, name="b"), name="c")),
        ("{{ a['b c'] }}", Field(base=A, name="b c")),
        ("{{ a[b] }}", Index(base=A, index=B)),
        ("{{ a.0 }}", Index(base=A, index=Literal(value=0))),
        ("{{ -2 * a }}", Binary(op="*", left=Literal(value=-2), right=A)),
        ("{{ -true + a }}", Binary(op="+", left=Unary(op="-", operand=Literal(value=True)), right=A)),
        ("{{ not a and b }}", Binary(op="and", left=Unary(op="not", operand=A), right=B)),
        ("{{ a | len }}", Call(function="len", args=(A,))),
        ("{{ a | f }}", None),
        ("{{ f(a) }}", Call(function="f", args=(A,))),
        ("{{ f(a, b=1) }}", Call(function="f", args=(A,), named=(("b", Literal(value=1)),))),
        ("{{ a | upper | trim }}", Call(function="trim", args=(Call(function="upper", args=(A,)),))),
        ("{{ a + b | len }}", Binary(op="+", left=A, right=Call(function="len", args=(B,)))),
        ("{{ [a, {'b': a}] }}", ListExpr(items=(A, RecordExpr(fields=(("b", A),))))),
        (
            "{{ {'a': {'b': {'c': a}}} }}",
            RecordExpr(fields=(("a", RecordExpr(fields=(("b", RecordExpr(fields=(("c", A),))),))),)),
        ),
        ("{{ a | join('}}') }}", Call(function="join", args=(A, Literal(value="}}")))),
        ("{{ a | join('\\n\\x41\\u0e44') }}", Call(function="join", args=(A, Literal(value="\nAไ")))),
        ("{{ a | join('\r\n') }}", Call(function="join", args=(A, Literal(value="\r\n")))),
        ("{{ 'it''s' | join(a) }}", Call(function="join", args=(Literal(value="its"), A))),
    ],
)
def test_a_slot_is_an_expression(source: str, value: Expr | None) -> None:
    if value is None:
        refused(source)
    else:
        assert repr(parse_template(source).segments) == repr((Slot(value=value),))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("{{ a if b else c }}", ("a", "b", "c")),
        ("{{ a[1:] }}", ("a",)),
        ("{{ a | title }}", ("a",)),
        ("{{ a is defined }}", ("a",)),
        ("{{ a < b < c }}", ("a", "b", "c")),
        ("{{ (a, b) | join }}", ("a", "b")),
        ("{{ a // b }}", ("a", "b")),
        ("{% for x in xs %}{{ x }}{{ y }}{% endfor %}", ("xs", "y")),
        ("{% if a %}{{ b }}{% elif c %}{% else %}{{ d }}{% endif %}", ("a", "b", "c", "d")),
        ("{% if a %}{% set b = 1 %}{{ b }}{% endif %}", ("a",)),
        ("{% if a %}{{ b }}{% set b = b %}{% endif %}", ("a", "b")),
        ("{% if a %}{% if c %}{% set b = 1 %}{% endif %}{{ b }}{% endif %}", ("a", "b", "c")),
        ("{% if a %}{% if c %}{% set b = 1 %}{% else %}{% set b = 2 %}{% endif %}{{ b }}{% endif %}", ("a", "c")),
        ("{% for x, y in a if x %}{% set z = y %}{{ z }}{{ loop.index }}{% else %}{{ x }}{% endfor %}", ("a", "x")),
        ("{% for x in a %}{% set z = x %}{% endfor %}", ("a",)),
        ("{% if a %}{% raw %}{{ b }}{% endif %}{% endraw %}{% endif %}", ("a",)),
        ("{% if a %}{{ '{% if b %}' }}{% endif %}", ("a",)),
        ("{% for x in xs %}{% for y in x %}{{ y }}{% endfor %}{% endfor %}", ("xs",)),
    ],
)
def test_what_only_jinja_can_say_is_a_block(source: str, names: tuple[str, ...]) -> None:
    (block,) = parse_template(source).segments
    assert isinstance(block, Block)
    assert (block.source, block.names) == (source, names)
    assert block.inputs == tuple(Name(name=name) for name in names)


@pytest.mark.parametrize(
    ("source", "segments"),
    [
        ("a {{ b }} c", (Text(text="a "), Slot(value=B), Text(text=" c"))),
        ("a {{- b -}} c", (Text(text="a"), Slot(value=B), Text(text="c"))),
        ("a\n {{- b }}\n", (Text(text="a"), Slot(value=B), Text(text="\n"))),
        ("{{ b }}}", (Slot(value=B), Text(text="}"))),
        ('{"a": {{ b }}}', (Text(text='{"a": '), Slot(value=B), Text(text="}"))),
        ("{{ '{{' }}{{ b }}{{ '{' }}", (Text(text="{{"), Slot(value=B), Text(text="{"))),
        ("{{ 1 }}{{ 'a' }}{{ [1, {'b': none}] }}", (Text(text='1a[1,{"b":null}]'),)),
        ("{% raw %} {{ a }} {% endraw %}", (Text(text=" {{ a }} "),)),
        ("a {%- raw -%} {{ a }} {%- endraw -%} b", (Text(text="a{{ a }}b"),)),
        ("{% raw %}{% endraw %}", ()),
        ("{{ [1][5] }}", (Slot(value=Index(base=ListExpr(items=(Literal(value=1),)), index=Literal(value=5))),)),
    ],
)
def test_the_segments_of_a_template(source: str, segments: tuple[Any, ...]) -> None:
    assert parse_template(source).segments == segments


def test_the_outer_marks_of_a_block_have_had_their_effect() -> None:
    subject = parse_template("a {%- if b -%} c {%- endif -%} d")
    assert subject.segments[0] == Text(text="a")
    assert subject.segments[2] == Text(text="d")
    block = subject.segments[1]
    assert isinstance(block, Block)
    assert block.source == "{% if b -%} c {%- endif %}"
    assert render(subject, b=True) == "acd"


def test_a_constant_that_fails_fails_in_each_row() -> None:
    with pytest.raises(ExpressionError, match="index 5 is outside a list of 1"):
        render("{{ [1][5] }}")
    assert render("{{ [1][5] | default('none') }}") == "none"


# --- errors of a row ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ r.nothing }}", "the record has no field `nothing`; it has x"),
        ("{{ xs[9] }}", "index 9 is outside a list of 2"),
        ("{{ xs.field }}", "`.field` needs a record, found list [1, 2]"),
        ("{{ xs + 1 }}", "`+` does not fit list [1, 2] and int 1"),
        ("{{ 1 / (xs[0] - 1) }}", "`1 / 0`: division by zero"),
        ("{{ xs | upper }}", "upper needs a text, found list [1, 2]"),
        (
            "{% if r.nothing %}{% endif %}",
            "the template block does not fit this row: 'dict object' has no attribute 'nothing'",
        ),
        (
            "{% if r.nothing == 1 %}{% endif %}",
            "the template block does not fit this row: 'dict object' has no attribute 'nothing'",
        ),
        ("{% for x in 5 %}{% endfor %}", "the template block does not fit this row: 'int' object is not iterable"),
        ("{% if xs %}{{ xs * 2 }}{% endif %}", "`*` does not fit list [1, 2] and int 2"),
        ("{% if xs %}{{ '%d' % 3 }}{% endif %}", '`%` does not fit text "%d" and int 3'),
        (
            "{% if xs %}{{ 'a' | center(9999999999) }}{% endif %}",
            "a filter takes numbers up to 100000, found 9999999999",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_an_error_of_the_row(source: str, message: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        render(source, r={"x": 1}, xs=[1, 2])
    assert raised.value.message == message


# --- what templates may not do ------------------------------------------------------------------------------------

REFUSED = [
    "{{ a.__class__ }}",
    "{{ a.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''.__class__ }}",
    "{{ [].__class__.__base__ }}",
    "{{ a.upper() }}",
    "{{ ''.join(a) }}",
    "{{ 'a'.format(b) }}",
    "{{ '{0.__class__}'.format(a) }}",
    "{{ '%s'.__mod__(a) }}",
    "{{ a | attr('__class__') }}",
    "{{ a | format(b) }}",
    "{{ a | xmlattr }}",
    "{{ a | pprint }}",
    "{{ a | random }}",
    "{{ a | urlize }}",
    "{{ a | safe }}",
    "{{ a.b.c() }}",
    "{{ a[0]() }}",
    "{{ (a | first)() }}",
    "{{ a() () }}",
    "{{ self.__init__ }}",
    "{% if a %}{{ self }}{% endif %}",
    "{% if a %}{{ self._TemplateReference__context }}{% endif %}",
    "{% if a %}{{ cycler('a', 'b') }}{% endif %}",
    "{% if a %}{{ lipsum() }}{% endif %}",
    "{% if a %}{{ namespace(b=1) }}{% endif %}",
    "{% if a %}{{ dict(b=1) }}{% endif %}",
    "{% if a %}{{ joiner() }}{% endif %}",
    "{% if a %}{{ range(9) }}{% endif %}",
    "{% for a in b %}{{ loop.__init__ }}{% endfor %}",
    "{% for a in b recursive %}{{ loop(a) }}{% endfor %}",
    "{% for a in b %}{{ loop.cycle('a') }}{% endfor %}",
    "{% include 'a' %}",
    "{% import 'a' as b %}",
    "{% from 'a' import b %}",
    "{% extends 'a' %}",
    "{% macro a() %}{% endmacro %}",
    "{% call a() %}{% endcall %}",
    "{% block a %}{% endblock %}",
    "{% filter upper %}{% endfilter %}",
    "{% set a = b %}",
    "{% do a %}",
    "{% debug %}",
    "{% autoescape true %}{% endautoescape %}",
    "{% if a %}{% include 'a' %}{% endif %}",
    "{% if a %}{% set b %}x{% endset %}{% endif %}",
    "{{ a ~ b }}",
    "{{ a ** b }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ f(*a) }}",
    "{{ f(**a) }}",
    "{{ a | tojson | safe }}",
    "{{ '\\ud800' + a }}",
    "{{ '\\x00' + a }}",
    "{{ 1e999 + a }}",
    "{{ " + "1" * 5000 + " + a }}",
    "{{ " + "(" * 500 + "a" + ")" * 500 + " }}",
    "{{ a" + " + a" * 500 + " }}",
    "{{ " + "[" * 500 + "]" * 500 + " }}",
    "{{ " + "not " * 500 + "a }}",
    "{{ " + "-" * 500 + "a }}",
    "{{ a" + ".b" * 500 + " }}",
    "{% if a %}" * 150 + "{% endif %}" * 150,
    "{% for a in b %}" * 30 + "{% endfor %}" * 30,
]


@pytest.mark.parametrize("source", REFUSED, ids=lambda source: source[:60])
def test_what_could_reach_beyond_the_values_is_refused(source: str) -> None:
    error = refused(source)
    assert error.message
    assert error.span is not None


@pytest.mark.parametrize(
    "source",
    [
        "{{ a['__class__'] }}",
        "{{ a['__class__']['__mro__'] }}",
        "{{ a[b] }}",
        "{% if true %}{{ a['__class__'] }}{% endif %}",
        "{% if true %}{{ a[b] }}{% endif %}",
        "{% if true %}{{ a.keys }}{% endif %}",
        "{% if true %}{{ a.update }}{% endif %}",
        "{% if true %}{{ c.upper }}{% endif %}",
        "{% if true %}{{ c.format }}{% endif %}",
        "{% if true %}{{ d.append }}{% endif %}",
        "{{ d | map(attribute='__class__') | join }}",
        "{{ d | map(attribute='upper') | join }}",
        "{{ d | groupby('__class__') }}",
        "{{ d | sort }}{{ d | selectattr('__class__') | join }}",
        "{% for x in d %}{{ loop['__class__'] }}{% endfor %}",
        "{% for x in d %}{{ loop['_iterable'] }}{% endfor %}",
        "{% for x in d %}{{ loop }}{% endfor %}",
        "{% for x in d %}{{ loop.cycle }}{% endfor %}",
        "{% for x in d %}{{ loop.changed }}{% endfor %}",
        "{{ a[c] }}",
        "{{ d | map('nothing') | join }}",
        "{{ d | select('nothing') | join }}",
        "{{ c | replace('', c) }}",
        "{{ range(999999999) }}",
        "{{ d | batch(999999999, 'x') }}",
        "{{ d | slice(999999999) }}",
        "{{ c | indent(999999999) }}",
    ],
)
def test_what_is_only_known_with_the_row_fails_there(source: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ExpressionError):
        render(source, a={"x": 1}, b="__class__", c="text", d=["p", "q"])
    assert time.perf_counter() - started < 5


def test_errors_point_at_the_piece_that_is_wrong() -> None:
    source = "first\n  {{ a | upper }} {{ a | nothing }}"
    span = refused(source).span
    assert span is not None
    assert (span.line, span.column) == (1, 1)
    origin = [(source.count("\n", 0, i) + 1, i - source.rfind("\n", 0, i)) for i in range(len(source) + 1)]
    with pytest.raises(TemplateError) as raised:
        parse_template(source, text_source("t", source), origin=origin)
    placed = raised.value.span
    assert placed is not None
    assert (placed.line, placed.column, placed.end_column) == (2, 19, 36)


def test_slots_and_blocks_mean_the_same() -> None:
    values = [None, True, False, 0, 1, 1.0, -2, 0.5, "", "a", "1", [], [1], ["a"], {}, {"a": 1}]
    operators = ["==", "!=", "<", "<=", ">", ">=", "in", "not in", "+", "-", "*", "/", "and", "or"]

    def run(source: str) -> Callable[[Any, Any], str]:
        rendered = renderer(map_template(parse_template(source), lambda leaf: Arg(index=int(leaf == B))))

        def outcome(a: Any, b: Any) -> str:
            try:
                return rendered([a, b])
            except ExpressionError:
                return "an error"

        return outcome

    for operator in operators:
        source = f"{{{{ a {operator} b }}}}"
        slot, block = run(source), run(f"{{% if true %}}{source}{{% endif %}}")
        assert isinstance(parse_template(source).segments[0], Slot)
        for a in values:
            for b in values:
                assert slot(a, b) == block(a, b), (operator, a, b)
