"""Random syntax trees: every kind of node, and texts that are hard to quote. Valid as syntax, not bound to anything.

The trees are in the normal form that parsing gives: a number with a minus before it is one literal, an index that is a
text is a field, neighbouring texts of a template are one. Each strategy is made once: making them takes far longer than
drawing from them.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from helix.expr import Binary, Call, Expr, Field, Index, ListExpr, Literal, Name, RecordExpr, Unary
from helix.syntax import (
    Agent,
    For,
    FunctionDecl,
    GroupBy,
    HistoryPart,
    If,
    Keep,
    Let,
    Limit,
    Llm,
    MessagePart,
    ModelDecl,
    Option,
    Output,
    OutputItem,
    Param,
    PromptPart,
    Repeat,
    Sort,
    Spread,
    Statement,
    Step,
    ToolDecl,
    UnorderedPart,
    UseDecl,
    Workflow,
)
from helix.templates.template import Block, Segment, Slot, Template, Text, parse_template, template
from helix.types import SCALARS, Choice, ListOf, Optional, Record, Type
from helix.words import RESERVED

# Words that the language uses itself, and that stay usable as names.
LANGUAGE_WORDS = (
    "history", "text", "part", "limit", "model", "output", "system", "user", "assistant", "sort", "group", "list",
    "choice", "workflow", "role", "from", "as", "by", "to", "up", "until", "when", "let", "tool", "function", "use",
    "repeat", "keep", "spread", "yield", "llm", "for", "unordered", "asc", "desc", "effects", "off", "agent", "int",
    "bool", "len", "join", "default", "rows", "loop", "self", "table", "python", "sql",
)  # fmt: skip
HARD_PIECES = (
    "{{", "}}", "{%", "%}", "{", "}", '"', '"""', "'", "\\", "\\n", "%s", "${HOME}", "---", "<|im_start|>",
    "ไทย ทดสอบ", "ถ้า", "👩\u200d🚀", "e\u0301", "\r", "\r\n", "\n", "\n\n", "  ", "\t", "# no comment", "{#",
    "{{ x }}", '{{ "a" }}', "{% if a %}", "\u200b", "\u202e", "\xa0", "\x07", "``", "$0", "/*", "\ue000", "\ue001",
)  # fmt: skip
BLOCKS = (
    "{% for a in xs %}{{ a.b }}, {% endfor %}",
    "{% if flag %}yes{% else %}no{% endif %}",
    '{% if kind == "a" %}\n  line "one"\n{%- elif kind in [1, 2] -%}\n\ttwo\r\n{% endif %}',
    '{{ items | map(attribute="b") | join(", ") }}',
    "{{ 'a' if flag else 'b' }}",
    "{% for a in xs | batch(2) %}{% set b = a[0] %}{% raw %}{{ {% {% endraw %}{{ b }}{{ '}}' }}{% endfor %}",
    '{{ name | truncate(9, end="\\"") }}',
    '{% if x is defined %}"""{% endif %}',
)


@cache
def names() -> st.SearchStrategy[str]:
    """Names: words of the language, plain ones, and ones of other scripts."""
    plain = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
    foreign = st.sampled_from(["ชื่อ", "ตั๋ว", "naïve", "票", "имя", "é_1"])
    return st.one_of(st.sampled_from(LANGUAGE_WORDS), plain, foreign).filter(
        lambda name: name not in RESERVED and name.isidentifier()
    )


@cache
def texts() -> st.SearchStrategy[str]:
    """Texts that are hard to quote, to indent or to escape."""
    piece = st.one_of(st.sampled_from(HARD_PIECES), st.text("ab {}\"'\\\n%#", max_size=4), st.text(max_size=3))
    joined = st.lists(piece, max_size=6).map("".join)
    return joined.map(lambda text: "".join(char for char in text if char != "\0" and not "\ud800" <= char <= "\udfff"))


@cache
def types(depth: int = 2) -> st.SearchStrategy[Type]:
    """Types of values."""
    scalar = st.sampled_from(list(SCALARS.values()))
    labels = st.lists(texts().filter(str.strip), min_size=1, max_size=4, unique=True)
    base: st.SearchStrategy[Type] = st.one_of(scalar, scalar, labels.map(lambda found: Choice(tuple(found))))
    if depth:
        inner = types(depth - 1)
        key = st.one_of(names(), names(), texts())
        fields = st.lists(st.tuples(key, inner), max_size=3, unique_by=lambda field: field[0])
        base = st.one_of(base, inner.map(ListOf), fields.map(lambda found: Record(tuple(found))))
    return st.one_of(base, base, base.filter(lambda kind: not isinstance(kind, Optional)).map(Optional))


@cache
def literals() -> st.SearchStrategy[Literal]:
    """Texts, numbers, bools and null."""
    numbers = st.one_of(st.integers(-5, 5), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
    return st.one_of(texts(), numbers, st.booleans(), st.none()).map(lambda value: Literal(value=value))


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, Literal) and isinstance(expr.value, int | float) and not isinstance(expr.value, bool)


def _is_text(expr: Expr) -> bool:
    return isinstance(expr, Literal) and isinstance(expr.value, str)


def _larger(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    key = st.one_of(names(), names(), texts())
    items = st.lists(inner, max_size=3).map(tuple)
    pairs = st.lists(st.tuples(key, inner), max_size=3, unique_by=lambda pair: pair[0]).map(tuple)
    named = st.lists(st.tuples(names(), inner), max_size=2, unique_by=lambda pair: pair[0]).map(tuple)
    functions = st.one_of(st.sampled_from(["join", "len", "upper", "default", "replace"]), names())
    operators = st.sampled_from(["and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "+", "-", "*", "/"])
    return st.one_of(
        st.builds(lambda base, name: Field(base=base, name=name), inner, key),
        st.builds(lambda base, index: Index(base=base, index=index), inner, inner.filter(lambda e: not _is_text(e))),
        items.map(lambda parts: ListExpr(items=parts)),
        pairs.map(lambda fields: RecordExpr(fields=fields)),
        inner.map(lambda operand: Unary(op="not", operand=operand)),
        inner.filter(lambda e: not _is_number(e)).map(lambda operand: Unary(op="-", operand=operand)),
        st.builds(lambda op, left, right: Binary(op=op, left=left, right=right), operators, inner, inner),
        st.builds(lambda f, args, given: Call(function=f, args=args, named=given), functions, items, named),
    )


@cache
def expressions(leaves: int = 6) -> st.SearchStrategy[Expr]:
    """Expressions of all kinds, also ones that make no sense."""
    leaf: st.SearchStrategy[Expr] = st.one_of(names().map(lambda name: Name(name=name)), literals())
    return st.recursive(leaf, _larger, max_leaves=leaves)


@cache
def templates() -> st.SearchStrategy[Template]:
    """Templates in normal form: text, slots of all kinds, and blocks that only Jinja2 can render."""
    blocks = st.sampled_from([segment for source in BLOCKS for segment in parse_template(source).segments]).filter(
        lambda segment: isinstance(segment, Block)
    )
    slots: st.SearchStrategy[Segment] = expressions(4).map(lambda value: Slot(value=value))
    pieces: st.SearchStrategy[Segment] = texts().map(lambda text: Text(text=text))
    return st.lists(st.one_of(pieces, pieces, slots, slots, blocks), max_size=5).map(lambda parts: template(*parts))


@cache
def settings() -> st.SearchStrategy[Option]:
    """Options of models and steps."""
    duration = st.sampled_from(["300ms", "2s", "5m", "1.5h"]).map(lambda text: Literal(value=text))
    value: st.SearchStrategy[Expr] = st.one_of(
        duration, literals(), names().map(lambda n: Name(name=n)), expressions(3)
    )
    return st.builds(lambda name, given: Option(name=name, value=given), names(), value)


@cache
def _traits() -> st.SearchStrategy[Option]:
    plain = literals().filter(lambda literal: not str(literal.value).startswith("-") or isinstance(literal.value, str))
    duration = st.sampled_from(["300ms", "2s"]).map(lambda text: Literal(value=text))
    word = names().map(lambda name: Name(name=name))
    # A tool may stand right before the `yield` of a loop.
    name = names().filter(lambda text: text != "yield")
    return st.builds(lambda trait, value: Option(name=trait, value=value), name, st.one_of(word, duration, plain))


@cache
def params() -> st.SearchStrategy[tuple[Param, ...]]:
    """Inputs of a workflow or a tool."""
    default = st.one_of(st.none(), expressions(3))
    one = st.builds(lambda name, kind, given: Param(name=name, type=kind, default=given), names(), types(), default)
    return st.lists(one, max_size=4).map(tuple)


@cache
def prompt_parts() -> st.SearchStrategy[PromptPart]:
    """Messages, histories and unordered messages."""
    role = st.sampled_from(["system", "user", "assistant"])
    contents = st.lists(templates(), max_size=3).map(tuple)
    message = st.builds(lambda who, content: MessagePart(role=who, content=content), role, templates())
    history = expressions(3).map(lambda value: HistoryPart(value=value))
    unordered = st.builds(lambda who, parts: UnorderedPart(role=who, parts=parts), role, contents)
    return st.one_of(message, message, message, history, unordered)


@cache
def llms() -> st.SearchStrategy[Llm]:
    """LLM steps."""
    return st.builds(
        lambda model, options, returns, parts: Llm(model=model, options=options, returns=returns, parts=parts),
        st.one_of(st.none(), names()),
        st.lists(settings(), max_size=3).map(tuple),
        st.one_of(st.none(), types()),
        st.lists(prompt_parts(), max_size=3).map(tuple),
    )


def agents() -> st.SearchStrategy[Agent]:
    """Agents; one may have no tools, and limits twice: binding finds that."""
    limit = st.one_of(
        st.builds(
            lambda name, count: Option(name=name, value=Literal(value=count)),
            st.sampled_from(("max_turns", "max_total_tokens")),
            st.integers(0, 10**6),
        ),
        st.sampled_from(("300ms", "2m", "1.5s")).map(lambda time: Option(name="max_time", value=Literal(value=time))),
        st.builds(
            lambda name, word: Option(name=name, value=Name(name=word)),
            st.sampled_from(("at_limit", "tool_calls", "trace")),
            st.one_of(names(), st.sampled_from(("fail", "answer", "schema", "on", "off"))),
        ),
    )
    tools = st.lists(names().map(lambda name: Name(name=name)), max_size=3).map(
        lambda items: ListExpr(items=tuple(items))
    )
    return st.builds(
        lambda llm, tools, limits: Agent(
            model=llm.model, options=llm.options, returns=llm.returns, parts=llm.parts, tools=tools, limits=limits
        ),
        llms(),
        tools,
        st.lists(limit, max_size=3).map(tuple),
    )


@cache
def _bodies(depth: int) -> st.SearchStrategy[tuple[Statement, ...]]:
    return st.lists(statements(depth), max_size=2).map(tuple)


@cache
def _declarations() -> st.SearchStrategy[Statement]:
    some_settings = st.lists(settings(), max_size=3).map(tuple)
    some_traits = st.lists(_traits(), max_size=3).map(tuple)
    return st.one_of(
        st.builds(lambda name, value: Let(name=name, value=value), names(), expressions()),
        st.builds(lambda name, options: ModelDecl(name=name, options=options), names(), some_settings),
        st.builds(
            lambda name, given, kind, origin, target, traits: ToolDecl(
                name=name, params=given, returns=kind, origin=origin, target=target, traits=traits
            ),
            names(), params(), types(), st.sampled_from(["python", "sql", "http"]), texts(), some_traits,
        ),
        st.builds(
            lambda name, given, kind, target: FunctionDecl(name=name, params=given, returns=kind, target=target),
            names(), params(), types(), texts(),
        ),
        st.builds(lambda path, name: UseDecl(path=path, name=name), texts(), names()),
    )  # fmt: skip


@cache
def _steps(depth: int) -> st.SearchStrategy[Statement]:
    value: st.SearchStrategy[Expr | Llm | For] = st.one_of(llms(), llms(), agents(), expressions())
    if depth:
        loops = st.builds(
            lambda variable, over, body, result: For(variable=variable, over=over, body=body, result=result),
            names(), expressions(3), _bodies(depth - 1), expressions(3),
        )  # fmt: skip
        value = st.one_of(value, loops)
    when = st.one_of(st.none(), st.none(), expressions(3))
    return st.builds(lambda name, given, test: Step(name=name, value=given, when=test), names(), value, when)


@cache
def _over_table() -> st.SearchStrategy[Statement]:
    column = st.one_of(
        names().map(lambda name: OutputItem(value=Name(name=name), name=name)),
        st.builds(lambda base, name: OutputItem(value=Field(base=base, name=name), name=name), expressions(2), names()),
        st.builds(lambda value, name: OutputItem(value=value, name=name), expressions(3), names()),
    )
    key = st.tuples(expressions(3), st.booleans())
    return st.one_of(
        expressions().map(lambda condition: Keep(condition=condition)),
        st.builds(lambda value, name: Spread(value=value, name=name), expressions(), names()),
        st.lists(key, min_size=1, max_size=3).map(lambda keys: Sort(keys=tuple(keys))),
        expressions(2).map(lambda count: Limit(count=count)),
        st.lists(column, min_size=1, max_size=8).map(lambda items: Output(items=tuple(items))),
    )


@cache
def statements(depth: int = 2) -> st.SearchStrategy[Statement]:
    """Statements of all kinds; blocks hold others down to a depth."""
    simple = st.one_of(_steps(depth), _steps(depth), _declarations(), _over_table())
    if not depth:
        return simple
    body = _bodies(depth - 1)
    arms = st.lists(st.tuples(expressions(3), body), min_size=1, max_size=3).map(tuple)
    until = st.one_of(st.none(), expressions(3))
    keys = st.lists(names(), min_size=1, max_size=3).map(tuple)
    return st.one_of(
        simple,
        simple,
        st.builds(lambda found, otherwise: If(arms=found, otherwise=otherwise), arms, body),
        st.builds(lambda times, test, inner: Repeat(times=times, until=test, body=inner), expressions(2), until, body),
        st.builds(lambda names_, inner: GroupBy(keys=names_, body=inner), keys, body),
    )


@cache
def workflows() -> st.SearchStrategy[Workflow]:
    """Whole workflows."""
    return st.builds(
        lambda name, given, body: Workflow(name=name, params=given, statements=body),
        names(),
        params(),
        st.lists(statements(), max_size=5).map(tuple),
    )
