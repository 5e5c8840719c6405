"""The Jinja2 that templates may use: a sandbox over JSON values, with a closed list of filters and no calls.

Follows Jinja2's own syntax tree: what the workflow language can say too is turned into its expressions, the rest is
checked here and compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, wraps
from types import GeneratorType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from helix.errors import TemplateError, name_help
from helix.evaluate import arithmetic, is_number
from helix.expr import Binary, Call, Expr, Field, Index, ListExpr, Literal, Name, RecordExpr, Unary
from helix.functions import ALIASES, FUNCTIONS, ExpressionError, to_text
from helix.span import Span

Place = Callable[[int, int], Span | None]

_KEPT = (
    "batch", "capitalize", "dictsort", "groupby", "indent", "items", "map", "reject", "rejectattr", "select",
    "selectattr", "slice", "title", "truncate", "wordcount", "wordwrap", "center",
)  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">=", "in": "in", "notin": "not in"}
_ARITHMETIC: dict[type[nodes.Node], str] = {nodes.Add: "+", nodes.Sub: "-", nodes.Mul: "*", nodes.Div: "/"}
_REFUSED = re.compile("[\0\ud800-\udfff]")
_PARAMETERS = {name: function.parameters for name, function in FUNCTIONS.items()}


# The widest that a filter may make a text or a list, so that no template fills the memory.
_LARGEST = 100_000
MAX_DEPTH = 100


class _Environment(ImmutableSandboxedEnvironment):
    """Fields and items of JSON values only: no attribute of a Python object can be reached."""

    # Operators mean in a block what they mean in a slot: `"a" * 9` and `"%s" % x` are no arithmetic.
    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        for value in (left, right):
            if isinstance(value, jinja2.Undefined):
                str(value)  # raises the error that names it
        return arithmetic(operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if obj is None:
            return None
        if isinstance(obj, dict) and argument in obj:
            return obj[argument]
        if isinstance(obj, list | str | tuple) and isinstance(argument, int | slice):
            try:
                return obj[argument]
            except IndexError:
                pass
        # The loop variable and groupby's pairs are Jinja2's own objects, with a few plain attributes.
        if type(obj).__module__.startswith("jinja2.") and not str(argument).startswith("_"):
            return super().getattr(obj, str(argument))
        return self.undefined(obj=obj, name=argument)


@cache
def environment() -> _Environment:
    """The one environment: built-in functions as filters, no globals, comments switched off."""
    made = _Environment(
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        keep_trailing_newline=True,
        # `{#` is plain text in prompts; Jinja2 needs some mark, so it gets one that text cannot hold.
        comment_start_string="\x00\x00#",
        comment_end_string="#\x00\x00",
    )
    kept = {name: _listing(made.filters[name]) for name in _KEPT}
    own = {name: function.run for name, function in FUNCTIONS.items()}
    made.filters = (
        kept | own | {alias: own[name] for alias, name in ALIASES.items()} | {"default": _default, "d": _default}
    )
    made.globals = {}
    return made


def _listing(run: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that gives a list where Jinja2's gives a generator: values are JSON values all the way."""

    @wraps(run)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        for given in (*args[1:], *kwargs.values()):
            if isinstance(given, int) and given > _LARGEST:
                raise ExpressionError(f"a filter takes numbers up to {_LARGEST}, found {given}")
        value = run(*args, **kwargs)
        return list(value) if isinstance(value, GeneratorType) else value

    return filtered


def _finalize(value: Any) -> Any:
    return value if isinstance(value, jinja2.Undefined) else to_text(value)


def _default(value: Any, fallback: Any = "", boolean: bool = False) -> Any:
    missing = isinstance(value, jinja2.Undefined) or value is None
    return fallback if missing or (boolean and not value) else value


def compile_block(source: str) -> Callable[[dict[str, Any]], str]:
    """The function that renders a block from its variables; raises what Jinja2 raises."""
    compiled = _compile(_parse(source, None))
    return lambda variables: compiled.render(variables)


def _compile(tree: nodes.Template) -> jinja2.Template:
    made = environment()
    return made.template_class.from_code(made, made.compile(tree), made.make_globals(None))


def slot_expression(source: str, place: Place) -> Expr | None:
    """The expression of a `{{ ... }}`; None where only Jinja2 can say it. Raises TemplateError."""
    whole = place(0, len(source))
    if not source[2:-2].strip("- \t\r\n"):
        raise TemplateError("an empty slot", whole, "a literal `{{` is written `{{ '{{' }}`")
    tree = _parse(source, whole)
    output = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(output, nodes.Output) or len(output.nodes) != 1 or not isinstance(output.nodes[0], nodes.Expr):
        raise TemplateError("a slot holds one value", whole, "a literal `{{` is written `{{ '{{' }}`")
    return _Converter(source, place).convert(output.nodes[0])


def block_names(source: str, span: Span | None) -> tuple[str, ...]:
    """The free variables of a block, sorted. Raises TemplateError for what templates may not use."""
    from jinja2 import meta

    tree = _parse(source, span)
    for node in _nodes(tree, span):
        _check(node, span)
        if isinstance(node, nodes.Name) and node.name in ("self", "super", "caller", "varargs", "kwargs"):
            raise TemplateError(f"a template block may not use `{node.name}`", span, "give the value another name")
    try:
        _compile(tree)
    except (jinja2.TemplateError, SyntaxError, RecursionError) as error:
        raise TemplateError(f"the template cannot be compiled: {error}", span) from None
    return tuple(sorted(meta.find_undeclared_variables(tree)))


def _parse(source: str, span: Span | None) -> nodes.Template:
    # Jinja2 would normalise carriage returns, so it gets a character in their place that the source does not hold.
    mark = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in source)
    try:
        tree = environment().parse(source.replace("\r", mark))
    except jinja2.TemplateSyntaxError as error:
        help = "a `{` before a slot is written `{{ '{' }}`" if source.startswith("{{{") else None
        raise TemplateError(f"the template is malformed: {_in_words(error)}", span, help) from None
    except RecursionError:
        raise TemplateError("the template is nested too deeply", span) from None
    except ValueError:
        raise TemplateError("a number of the template has too many digits", span) from None
    for node in _nodes(tree, span):
        if isinstance(node, nodes.TemplateData):
            node.data = node.data.replace(mark, "\r")
        elif isinstance(node, nodes.Const):
            node.value = _constant(node.value, mark, span)
    return tree


def _in_words(error: jinja2.TemplateSyntaxError) -> str:
    """Jinja2's message without its names of tokens."""
    signs = {"end of print statement": "}}", "end of statement block": "%}"}
    message = (error.message or "").rstrip(".")
    tokens = re.fullmatch(r"expected token '(.+)', got '(.+)'", message)
    if tokens is None:
        return message
    expected, found = (signs.get(token, token) for token in tokens.groups())
    return f"expected `{expected}`, found `{found}`"


def _nodes(tree: nodes.Node, span: Span | None) -> list[nodes.Node]:
    """All nodes below one. Raises TemplateError where they are nested more deeply than Python code can be."""
    found: list[nodes.Node] = []
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in node.iter_child_nodes()]
        if not level:
            return found
        found += level
    raise TemplateError("the template is nested too deeply", span, "give parts of it steps of their own")


def _constant(value: Any, mark: str, span: Span | None) -> Any:
    if isinstance(value, float) and value - value != 0:
        raise TemplateError("a number of the template is not finite", span)
    if not isinstance(value, str):
        return value
    if refused := _REFUSED.search(value):
        raise TemplateError(f"character U+{ord(refused[0]):04X} cannot stand in a template", span)
    return value.replace(mark, "\r")


_FORBIDDEN: dict[type[nodes.Node], tuple[str, str]] = {
    nodes.Call: ("templates call nothing", "use a filter, `{{ name | upper }}`, or compute the value in a step"),
    nodes.Concat: ("templates have no `~`", "write the values one after the other: `{{ a }}{{ b }}`"),
    nodes.Pow: ("templates have no `**`", "compute the value in a step"),
    nodes.Extends: ("templates include no other templates", "`use` another workflow file instead"),
    nodes.Include: ("templates include no other templates", "`use` another workflow file instead"),
    nodes.Import: ("templates include no other templates", "`use` another workflow file instead"),
    nodes.FromImport: ("templates include no other templates", "`use` another workflow file instead"),
    nodes.Macro: ("templates define no macros", "`use` another workflow file instead"),
    nodes.CallBlock: ("templates define no macros", "`use` another workflow file instead"),
    nodes.FilterBlock: ("templates have no filter blocks", "apply the filter to the value"),
    nodes.AssignBlock: ("templates have no block `set`", "write `{% set name = value %}`"),
}


def _check(node: nodes.Node, span: Span | None) -> None:
    refused = _FORBIDDEN.get(type(node))
    if refused:
        raise TemplateError(refused[0], span, refused[1])
    if isinstance(node, nodes.Filter) and node.name not in environment().filters:
        known = environment().filters
        raise TemplateError(f"unknown filter `{node.name}`", span, name_help(node.name, known, "filters"))
    if isinstance(node, nodes.Test) and node.name not in environment().tests:
        raise TemplateError(f"unknown test `{node.name}`", span, name_help(node.name, environment().tests, "tests"))
    if isinstance(node, nodes.Getattr) and node.attr.startswith("__"):
        raise TemplateError(f"templates may not use `{node.attr}`", span)


class _Converter:
    """Turns Jinja2's tree of one slot into an expression; `None` where the workflow language has no such form."""

    def __init__(self, source: str, place: Place) -> None:
        self._source = source
        self._place = place

    def convert(self, node: nodes.Expr) -> Expr | None:
        span = self._place(0, len(self._source))
        _check_slot(node, span)
        return self._expr(node)

    def _name_span(self, name: str) -> Span | None:
        found = re.search(rf"(?<![\w.]){re.escape(name)}\b", self._source)
        return self._place(found.start(), found.end()) if found else self._place(0, len(self._source))

    def _all(self, parts: list[nodes.Expr]) -> tuple[Expr, ...] | None:
        converted = [self._expr(part) for part in parts]
        return (
            None if any(part is None for part in converted) else tuple(part for part in converted if part is not None)
        )

    def _expr(self, node: nodes.Node) -> Expr | None:
        match node:
            case nodes.Const(value=value) if isinstance(value, str | int | float | bool | None):
                return Literal(value=value)
            case nodes.Name(name="null"):
                return Literal(value=None)
            case nodes.Name(name=name):
                return Name(name=name, span=self._name_span(name))
            case nodes.Getattr(node=base, attr=attr):
                inner = self._expr(base)
                return None if inner is None else Field(base=inner, name=attr, span=self._name_span_of_field(attr))
            case nodes.Getitem(node=base, arg=arg):
                return self._item(base, arg)
            case nodes.List(items=items):
                parts = self._all(items)
                return None if parts is None else ListExpr(items=parts)
            case nodes.Dict(items=items):
                return self._record(items)
            case nodes.Filter():
                return self._filter(node)
            case nodes.Call(node=nodes.Name(name=name), args=args, kwargs=kwargs, dyn_args=None, dyn_kwargs=None):
                parts, given = self._all(args), self._all([keyword.value for keyword in kwargs])
                if parts is None or given is None:
                    return None
                named = tuple((str(keyword.key), value) for keyword, value in zip(kwargs, given, strict=True))
                return Call(function=name, args=parts, named=named, span=self._name_span(name))
        return self._operation(node)

    def _name_span_of_field(self, name: str) -> Span | None:
        found = re.search(rf"\.\s*({re.escape(name)})\b", self._source)
        return self._place(found.start(1), found.end(1)) if found else self._place(0, len(self._source))

    def _item(self, base: nodes.Node, arg: nodes.Node) -> Expr | None:
        inner, position = self._expr(base), self._expr(arg)
        if inner is None or position is None:
            return None
        if isinstance(position, Literal) and isinstance(position.value, str):
            return Field(base=inner, name=position.value)
        return Index(base=inner, index=position)

    def _record(self, pairs: list[nodes.Pair]) -> Expr | None:
        fields: list[tuple[str, Expr]] = []
        for pair in pairs:
            value = self._expr(pair.value)
            if value is None or not isinstance(pair.key, nodes.Const) or not isinstance(pair.key.value, str):
                return None
            fields.append((pair.key.value, value))
        return RecordExpr(fields=tuple(fields))

    def _filter(self, node: nodes.Filter) -> Expr | None:
        name = ALIASES.get(node.name, node.name)
        if name not in FUNCTIONS or node.node is None or node.dyn_args or node.dyn_kwargs:
            return None
        parts = self._all([node.node, *node.args])
        if parts is None:
            return None
        named: dict[str, Expr] = {}
        for keyword in node.kwargs:
            value = self._expr(keyword.value)
            key = {"default_value": "fallback", "d": "separator"}.get(str(keyword.key), str(keyword.key))
            if value is None or key not in _PARAMETERS[name][len(parts) :]:
                return None
            named[key] = value
        expected = _PARAMETERS[name][len(parts) : len(parts) + len(named)]
        if set(named) != set(expected):
            return None
        return Call(function=name, args=(*parts, *(named[key] for key in expected)), span=self._name_span(node.name))

    def _operation(self, node: nodes.Node) -> Expr | None:
        match node:
            case nodes.Compare(expr=left, ops=[nodes.Operand(op=op, expr=right)]):
                return self._binary(_COMPARISONS[op], left, right)
            case nodes.And(left=left, right=right):
                return self._binary("and", left, right)
            case nodes.Or(left=left, right=right):
                return self._binary("or", left, right)
            case nodes.Not(node=operand):
                inner = self._expr(operand)
                return None if inner is None else Unary(op="not", operand=inner)
            case nodes.Neg(node=operand):
                inner = self._expr(operand)
                if isinstance(inner, Literal) and is_number(inner.value):
                    return Literal(value=-inner.value)
                return None if inner is None else Unary(op="-", operand=inner)
            case nodes.BinExpr(left=left, right=right) if type(node) in _ARITHMETIC:
                return self._binary(_ARITHMETIC[type(node)], left, right)
        return None

    def _binary(self, op: str, left: nodes.Node, right: nodes.Node) -> Expr | None:
        first, second = self._expr(left), self._expr(right)
        return None if first is None or second is None else Binary(op=op, left=first, right=second)


def _check_slot(root: nodes.Expr, span: Span | None) -> None:
    """As `_check`, but a slot may call a function by name: the binder knows whether it is one."""
    for node in (root, *_nodes(root, span)):
        if not (isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name)):
            _check(node, span)
