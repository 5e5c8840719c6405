"""What expressions come to: values, nulls, and errors of a row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import expressions

from helix.canonical import canonical_text
from helix.errors import ToolError
from helix.evaluate import evaluator, same
from helix.expr import Arg, Expr, Name, transform
from helix.functions import ALIASES, FUNCTIONS, ExpressionError, MissingValue, to_text
from helix.grammar.parse import parse
from helix.syntax import Let
from helix.types import FLOAT, INT, JSON, TEXT, Choice, ListOf, Optional, Type, mismatch, type_of

VALUES: dict[str, Any] = {
    "n": None,
    "t": True,
    "f": False,
    "one": 1,
    "two": 2.5,
    "s": "Hello, World",
    "e": "",
    "xs": [3, 1, 2],
    "words": ["b", "a", "b"],
    "r": {"a": 1, "b": {"c": None}, "first name": "Ann"},
    "rows": [{"k": 1}, {"k": 2}],
}


def run(text: str, functions: dict[str, Any] | None = None, **values: Any) -> Any:
    """The value of an expression of the workflow language."""
    (let,) = parse(f"workflow w()\nlet x = {text}\n").statements
    assert isinstance(let, Let)
    known = VALUES | values
    names = sorted(known)

    def position(leaf: Expr) -> Expr:
        return Arg(index=names.index(leaf.name)) if isinstance(leaf, Name) else leaf

    return evaluator(transform(let.value, position), functions)([known[name] for name in names])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3 - 4 / 2", 5.0),
        ("7 / 2", 3.5),
        ("6 / 2", 3.0),
        ("-one - -one", 0),
        ('"a" + "b"', "ab"),
        ("[1] + [2]", [1, 2]),
        ("n + 1", None),
        ("1 - n", None),
        ("-n", None),
        ("1 == 1.0", True),
        ("t == 1", False),
        ("f == 0", False),
        ("[1, { a: t }] == [1.0, { a: true }]", True),
        ("[1, { a: t }] == [1, { a: 1 }]", False),
        ("n == null", True),
        ("n != 0", True),
        ("1 < 2.5", True),
        ('"a" < "b"', True),
        ("n < 1", False),
        ("n >= 1", False),
        ("1 > n", False),
        ("1 in xs", True),
        ("1.0 in xs", True),
        ("t in xs", False),
        ('"World" in s', True),
        ('"a" in r', True),
        ("1 in r", False),
        ("1 in n", False),
        ("9 not in xs", True),
        ("1 not in n", True),
        ("not n", True),
        ("not xs", False),
        ("n or 3", 3),
        ("e or n", None),
        ("one and s", "Hello, World"),
        ("f and 1 / 0", False),
        ("t or 1 / 0", True),
        ("r.a", 1),
        ("r.b.c", None),
        ("r.b.c.d.e", None),
        ('r["first name"]', "Ann"),
        ("n.anything", None),
        ("n[0]", None),
        ("xs[0] + xs[-1]", 5),
        ("s[0]", "H"),
        ("rows[1].k", 2),
        ("[one, { a: s }]", [1, {"a": "Hello, World"}]),
        ("{}", {}),
    ],
)
def test_operators(text: str, value: Any) -> None:
    found = run(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("abs(-3)", 3),
        ("default(n, 7)", 7),
        ("default(f, 7)", False),
        ('default(e, "x")', ""),
        ('default(e, "x", true)', "x"),
        ("default(n)", ""),
        ("default(r.nothing, 7)", 7),
        ("default(r.nothing.deeper, 7)", 7),
        ("default(xs[9], 7)", 7),
        ("default(first([]), 7)", 7),
        ("first(xs)", 3),
        ("last(xs)", 2),
        ("first(s) + last(s)", "Hd"),
        ('float("2.5") + float(1) + float(" 1e1 ")', 13.5),
        ('int("12") + int(2.9) + int(t)', 15),
        ("join(xs)", "312"),
        ('join(words, ", ")', "b, a, b"),
        ('join([n, t, 1.5, r.b], "|")', '|true|1.5|{"c":null}'),
        ("json(r)", '{"a":1,"b":{"c":null},"first name":"Ann"}'),
        ("json(s)", '"Hello, World"'),
        ("len(s)", 12),
        ("len(xs) + len(r) + len(n)", 6),
        ("lower(s)", "hello, world"),
        ("upper(s)", "HELLO, WORLD"),
        ("max(xs)", 3),
        ("min(words)", "a"),
        ("range(3)", [0, 1, 2]),
        ("range(2, 4)", [2, 3]),
        ("range(4, 2)", []),
        ('replace(s, "l", "L")', "HeLLo, WorLd"),
        ("reverse(xs)", [2, 1, 3]),
        ("round(two)", 2),
        ("round(2.567, 2)", 2.57),
        ("round(1234, -2)", 1200),
        ("sort(xs)", [1, 2, 3]),
        ("sort(words)", ["a", "b", "b"]),
        ('split(" a  b ")', ["a", "b"]),
        ('split("a,b,,c", ",")', ["a", "b", "", "c"]),
        ("sum(xs)", 6),
        ("sum([])", 0),
        ("sum([1, 2.5])", 3.5),
        ("take(xs, 2)", [3, 1]),
        ("take(s, 5)", "Hello"),
        ("take(xs, -1)", []),
        ("text(n) + text(t) + text(xs)", "true[3,1,2]"),
        ('trim("  a \\n")', "a"),
        ("unique([1, 1.0, t, 1, [1], [1]])", [1, 1.0, True, [1]]),
    ],
)
def test_functions(text: str, value: Any) -> None:
    found = run(text)
    assert found == value
    assert canonical_text(found) == canonical_text(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s + 1", '`+` does not fit text "Hello, World" and int 1'),
        ("t + 1", "`+` does not fit bool true and int 1"),
        ("s * 2", '`*` does not fit text "Hello, World" and int 2'),
        ("xs - xs", "`-` does not fit list [3, 1, 2] and list [3, 1, 2]"),
        ("-s", '`-` needs a number, found text "Hello, World"'),
        ("-t", "`-` needs a number, found bool true"),
        ("1 / 0", "`1 / 0`: division by zero"),
        ("1e308 * 10", "`1e+308 * 10` is not a finite number"),
        ("1 < s", '`<` needs two numbers or two texts, found int 1 and text "Hello, World"'),
        ("t < 1", "`<` needs two numbers or two texts, found bool true and int 1"),
        ("1 in 2", "`in` needs a list, a record or two texts, found int 1 and int 2"),
        ("1 in s", '`in` needs a list, a record or two texts, found int 1 and text "Hello, World"'),
        ("s.length", '`.length` needs a record, found text "Hello, World"'),
        ("r.nothing", "the record has no field `nothing`; it has a, b, first name"),
        ("xs[3]", "index 3 is outside a list of 3"),
        ("s[99]", "index 99 is outside a text of 12"),
        ("xs[t]", "`[...]` needs a list and an int, found list [3, 1, 2] and bool true"),
        ("xs[1.0]", "`[...]` needs a list and an int, found list [3, 1, 2] and float 1.0"),
        ("r[0]", '`[...]` needs a list and an int, found record {"a": 1, "b": {"c": null}, "first nam... and int 0'),
        ("upper(1)", "upper needs a text, found int 1"),
        ("len(1)", "len needs a text, list or record, found int 1"),
        ("join(s)", 'join needs a list, found text "Hello, World"'),
        ("join(xs, 1)", "join needs a text, found int 1"),
        ('split(s, "")', "split needs a separator that is not empty"),
        ('replace(s, "", "x")', "replace needs a text to look for that is not empty"),
        ("first([])", "first needs a list or text that is not empty"),
        ("first(0)", "first needs a list, found int 0"),
        ("max([])", "max needs a list that is not empty"),
        ('max([1, "a"])', "max needs a list of numbers or a list of texts"),
        ("sort([t, f])", "sort needs a list of numbers or a list of texts"),
        ('int("a")', 'int needs a number or a text that is one, found text "a"'),
        ("int(xs)", "int needs a number or a text that is one, found list [3, 1, 2]"),
        ('float("nan")', 'float needs a number or a text that is one, found text "nan"'),
        ('float("1e999")', 'float needs a number or a text that is one, found text "1e999"'),
        ("sum([1e308, 1e308])", "the sum is not a finite number"),
        ('sum(["a"])', 'sum needs a number, found text "a"'),
        ("range(100001)", "range gives at most 100000 numbers, found 100001"),
        ("range(1.0)", "range needs an int, found float 1.0"),
        ("round(1, 1000000000)", "round takes -400 to 400 digits, found 1000000000"),
        ("round(s)", 'round needs a number, found text "Hello, World"'),
        ("abs(t)", "abs needs a number, found bool true"),
    ],
)
def test_what_has_no_value(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        run(text)
    assert raised.value.message == message
    assert raised.value.kind == "expression"


def test_only_what_is_missing_has_a_default() -> None:
    for text in ("r.nothing", "xs[9]", "first([])", "max([])"):
        with pytest.raises(MissingValue):
            run(text)
        assert run(f'default({text}, "none")') == "none"
    for text in ("1 / 0", "s + 1", "upper(1)"):
        with pytest.raises(ExpressionError):
            run(f'default({text}, "none")')


def test_numbers_stay_within_what_can_be_written() -> None:
    big = 10**1200
    with pytest.raises(ExpressionError, match="more than 4096 bits"):
        run("a * a", a=big)
    with pytest.raises(ExpressionError, match="not a finite number"):
        run("sum([a, 0.5])", a=big)
    with pytest.raises(ExpressionError, match="too large"):
        run("a / 3", a=big)


def test_a_value_nested_too_deeply_has_no_text() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ExpressionError, match="nested too deeply"):
        to_text(deep)
    with pytest.raises(ExpressionError, match="nested too deeply to be shown"):
        run("upper(a)", a=deep)


def test_declared_functions() -> None:
    assert run("score(s, 2) + 1", {"score": lambda text, factor: len(text) * factor}) == 25
    # A function of the workflow goes before a built-in one of its name.
    assert run("upper(s)", {"upper": lambda text: "mine"}) == "mine"


def test_a_declared_function_that_raises_is_an_error_with_its_traceback() -> None:
    def score(text: str) -> int:
        raise KeyError(text)

    with pytest.raises(ToolError) as raised:
        run("score(s)", {"score": score})
    assert raised.value.message == "score: KeyError: 'Hello, World'"
    assert "in score" in raised.value.traceback
    assert raised.value.kind == "tool"


scalars = st.none() | st.booleans() | st.integers(-100, 100) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    scalars | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(json_values, json_values)
def test_equality_is_that_of_json(a: Any, b: Any) -> None:
    assert same(a, a)
    assert same(a, b) == same(b, a)
    if canonical_text(a) == canonical_text(b):
        assert same(a, b)
    if same(a, b):
        assert run("a == b and a in [b] and not a != b", a=a, b=b) is True


@given(expressions(8), st.lists(json_values, min_size=4, max_size=4))
def test_any_expression_has_a_json_value_or_an_error(expr: Expr, values: list[Any]) -> None:
    seen: dict[str, int] = {}

    def position(leaf: Expr) -> Expr:
        return Arg(index=seen.setdefault(leaf.name, len(seen)) % 4) if isinstance(leaf, Name) else leaf

    def anything(*args: Any, **named: Any) -> Any:
        return [*args]

    bound = transform(expr, position)
    unknown = {call.function: anything for call in _calls(bound) if call.function not in FUNCTIONS}
    try:
        value = evaluator(bound, unknown)(values)
    except (ExpressionError, TypeError) as raised:
        failed = raised
    else:
        assert mismatch(value, JSON) is None
        canonical_text(value)
        return
    # The number of arguments is a matter of binding.
    assert isinstance(failed, ExpressionError) or "argument" in str(failed)


def _calls(expr: Expr) -> list[Any]:
    from helix.expr import Call, walk

    return [part for part in walk(expr) if isinstance(part, Call)]


@pytest.mark.parametrize(
    ("function", "kinds", "result"),
    [
        ("len", (TEXT,), INT),
        ("first", (ListOf(INT),), INT),
        ("first", (TEXT,), TEXT),
        ("last", (JSON,), JSON),
        ("max", (Optional(ListOf(FLOAT)),), FLOAT),
        ("default", (Optional(INT), INT), INT),
        ("default", (Optional(TEXT),), TEXT),
        ("default", (Optional(INT), TEXT), JSON),
        ("default", (Choice(("a",)), TEXT), TEXT),
        ("split", (TEXT,), ListOf(TEXT)),
        ("sort", (ListOf(TEXT),), ListOf(TEXT)),
        ("range", (INT,), ListOf(INT)),
    ],
)
def test_the_types_of_functions(function: str, kinds: tuple[Type, ...], result: Type) -> None:
    assert FUNCTIONS[function].result(kinds) == result


def test_each_function_says_what_it_takes() -> None:
    for name, function in FUNCTIONS.items():
        assert function.name == name
        assert 1 <= function.required <= len(function.parameters)
    assert set(ALIASES.values()) <= set(FUNCTIONS)
    assert not set(ALIASES) & set(FUNCTIONS)


@given(json_values)
def test_a_value_is_of_its_type(value: Any) -> None:
    assert mismatch(value, type_of(value)) is None
    assert isinstance(to_text(value), str)
