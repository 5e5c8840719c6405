"""The Jinja2 that templates may use: a sandbox over JSON values, with a closed list of filters and no calls.

`slot` turns what the workflow language can say too into its expressions; the rest is checked here and compiled.
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
from jinja2.visitor import NodeTransformer

from helix.errors import TemplateError, name_help
from helix.evaluate import arithmetic, compare
from helix.functions import ALIASES, FUNCTIONS, ExpressionError, to_text
from helix.span import Span
from helix.templates.names import free_names

_KEPT = (
    "batch", "capitalize", "dictsort", "groupby", "indent", "items", "map", "reject", "rejectattr", "select",
    "selectattr", "slice", "title", "truncate", "wordcount", "wordwrap", "center",
)  # fmt: skip
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">=", "in": "in", "notin": "not in"}
_REFUSED = re.compile("[\0\ud800-\udfff]")
# The widest that a filter may make a text or a list, so that no template fills the memory.
_LARGEST = 100_000
MAX_DEPTH = 100


class _Environment(ImmutableSandboxedEnvironment):
    """Fields and items of JSON values only: no attribute of a Python object can be reached."""

    # Operators mean in a block what they mean in a slot: `"a" * 9` and `"%s" % x` are no arithmetic.
    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        return arithmetic(operator, _defined(left), _defined(right))

    def compare(self, left: Any, operator: str, right: Any) -> bool:
        """A comparison as a slot makes it: `true` is not 1, and null neither less nor more."""
        return compare(operator, _defined(left), _defined(right))

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


def _defined(value: Any) -> Any:
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises the error that names it
    return value


class _Comparisons(NodeTransformer):
    """Comparisons as calls of the environment's own."""

    def visit_Compare(self, node: nodes.Compare) -> nodes.Expr:
        self.generic_visit(node)
        left: nodes.Expr = node.expr
        whole: nodes.Expr | None = None
        for operand in node.ops:
            sign = nodes.Const(COMPARISONS[operand.op])
            step = nodes.Call(nodes.EnvironmentAttribute("compare"), [left, sign, operand.expr], [], None, None)
            whole = step if whole is None else nodes.And(whole, step)
            left = operand.expr
        assert whole is not None
        return whole


def _finalize(value: Any) -> Any:
    return value if isinstance(value, jinja2.Undefined) else to_text(value)


def _default(value: Any, fallback: Any = "", boolean: bool = False) -> Any:
    missing = isinstance(value, jinja2.Undefined) or value is None
    return fallback if missing or (boolean and not value) else value


def compile_block(source: str) -> Callable[[dict[str, Any]], str]:
    """The function that renders a block from its variables; raises what Jinja2 raises."""
    compiled = _compile(parse(source, None))
    return lambda variables: compiled.render(variables)


def _compile(tree: nodes.Template) -> jinja2.Template:
    made = environment()
    _Comparisons().visit(tree)
    return made.template_class.from_code(made, made.compile(tree), made.make_globals(None))


def block_names(source: str, span: Span | None) -> tuple[str, ...]:
    """The free variables of a block, sorted. Raises TemplateError for what templates may not use."""
    tree = parse(source, span)
    names = free_names(tree)
    for node in all_nodes(tree, span):
        check(node, span)
        if isinstance(node, nodes.Name) and node.name in ("self", "super", "caller", "varargs", "kwargs"):
            raise TemplateError(f"a template block may not use `{node.name}`", span, "give the value another name")
    try:
        _compile(tree)
    except (jinja2.TemplateError, SyntaxError, RecursionError) as error:
        raise TemplateError(f"the template cannot be compiled: {error}", span) from None
    return names


def parse(source: str, span: Span | None) -> nodes.Template:
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
    for node in all_nodes(tree, span):
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


def all_nodes(tree: nodes.Node, span: Span | None) -> list[nodes.Node]:
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


def check(node: nodes.Node, span: Span | None) -> None:
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
