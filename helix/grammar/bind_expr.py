"""Expressions and templates to operators: names to inputs, and the type of every part checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helix.errors import BindError, HelixError, SourceError, TypeMismatch, name_help, near_match
from helix.evaluate import evaluator
from helix.expr import Arg, Binary, Call, Expr, Field, Index, ListExpr, Literal, Name, RecordExpr, Unary, walk
from helix.functions import ALIASES, FUNCTIONS
from helix.grammar.scope import Context, Scope, constant, null
from helix.logical import Apply, Render, Value
from helix.span import Span
from helix.syntax import FunctionDecl
from helix.templates.template import Block, Segment, Slot, Template, template
from helix.types import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    TEXT,
    Choice,
    ListOf,
    Optional,
    Record,
    Table,
    Type,
    fits,
    is_textual,
    join,
    optional,
    quote,
    required,
    type_of,
)

_NUMBERS = (INT, FLOAT)


def bind_expr(context: Context, scope: Scope, expr: Expr) -> Value:
    """The operator that computes an expression: the named operator itself, a constant, or an `Apply`."""
    if isinstance(expr, Name):
        return scope.lookup(context, expr.name, expr.span)
    binder = _Binder(context, scope)
    bound, kind = binder.bind(expr)
    if not binder.inputs and not any(isinstance(part, Call) for part in walk(bound)):
        return _folded(context, bound, expr.span)
    return Apply(expr=bound, args=tuple(binder.inputs), type=kind, span=expr.span)


def bind_template(context: Context, scope: Scope, subject: Template) -> Render:
    """The operator that renders a template."""
    binder = _Binder(context, scope)
    segments: list[Segment] = []
    for segment in subject.segments:
        match segment:
            case Slot(value=value):
                segments.append(Slot(value=binder.bind(value)[0]))
            case Block(inputs=inputs):
                segments.append(replace(segment, inputs=tuple(binder.bind(value)[0] for value in inputs)))
            case _:
                segments.append(segment)
    return Render(template=template(*segments), args=tuple(binder.inputs), span=subject.span)


def constant_value(context: Context, scope: Scope, expr: Expr, what: str) -> Any:
    """The value of an expression that must be known before the run; a mistake gives None."""
    import json

    binder = _Binder(context, scope)
    before = len(context.errors)
    bound, _ = binder.bind(expr)
    values = [value.json if hasattr(value, "json") else None for value in binder.inputs]
    if len(context.errors) > before:
        return None
    if any(value is None for value in values) or any(_is_declared(context, part) for part in walk(bound)):
        context.error(BindError(f"{what} must be a constant", expr.span, "write a literal, or the name of a `let`"))
        return None
    try:
        return evaluator(bound)([json.loads(value) for value in values if value is not None])
    except HelixError as error:
        context.error(TypeMismatch(str(error), expr.span))
        return None


def _is_declared(context: Context, part: Expr) -> bool:
    return isinstance(part, Call) and part.function in context.callables


def _folded(context: Context, bound: Expr, span: Span | None) -> Value:
    try:
        return constant(evaluator(bound)(()), span)
    except HelixError as error:
        context.error(TypeMismatch(str(error), span))
        return null()


class _Binder:
    """Binds one expression or template; equal inputs share one position."""

    def __init__(self, context: Context, scope: Scope) -> None:
        self._context = context
        self._scope = scope
        self.inputs: list[Value] = []

    def bind(self, expr: Expr) -> tuple[Expr, Type]:
        """The expression over `Arg`s, and its type; a mistake is noted and has the type json."""
        match expr:
            case Literal(value=value):
                return expr, type_of(value)
            case Name(name=name, span=span):
                return self._input(self._scope.lookup(self._context, name, span), span)
            case Field(base=base, name=name):
                inner, kind = self.bind(base)
                return replace(expr, base=inner), self._field(kind, name, expr)
            case Index(base=base, index=index):
                inner, kind = self.bind(base)
                position, position_kind = self.bind(index)
                return replace(expr, base=inner, index=position), self._index(kind, position_kind, expr)
            case ListExpr(items=items):
                bound = [self.bind(item) for item in items]
                item_kind: Type = bound[0][1] if bound else JSON
                for _, kind in bound[1:]:
                    item_kind = join(item_kind, kind)
                return replace(expr, items=tuple(item for item, _ in bound)), ListOf(item_kind)
            case RecordExpr(fields=fields):
                parts = [(name, *self.bind(value)) for name, value in fields]
                kind = Record(tuple((name, kind) for name, _, kind in parts))
                return replace(expr, fields=tuple((name, value) for name, value, _ in parts)), kind
            case Unary(op=op, operand=operand):
                inner, kind = self.bind(operand)
                if op == "-" and required(kind) not in (*_NUMBERS, JSON):
                    self._mismatch(f"`-` needs a number, found {kind}", expr)
                return replace(expr, operand=inner), BOOL if op == "not" else kind
            case Binary(op=op, left=left, right=right):
                first, left_kind = self.bind(left)
                second, right_kind = self.bind(right)
                return replace(expr, left=first, right=second), self._binary(op, left_kind, right_kind, expr)
            case Call():
                return self._call(expr)
        raise TypeError(f"{type(expr).__name__} cannot be bound")

    def _input(self, value: Value, span: Span | None) -> tuple[Expr, Type]:
        for position, known in enumerate(self.inputs):
            if known == value:
                return Arg(index=position, span=span), value.type
        self.inputs.append(value)
        return Arg(index=len(self.inputs) - 1, span=span), value.type

    def _mismatch(self, message: str, expr: Expr, help: str | None = None) -> Type:
        self._context.error(TypeMismatch(message, expr.span, help))
        return JSON

    def _error(self, error: SourceError) -> Type:
        self._context.error(error)
        return JSON

    def _field(self, kind: Type, name: str, expr: Field) -> Type:
        inner = required(kind)
        if isinstance(inner, Record):
            found = inner.field(name)
            if found is None:
                known = [field for field, _ in inner.fields]
                return self._error(BindError(f"no field `{name}`", expr.span, name_help(name, known, "fields")))
            return optional(found) if isinstance(kind, Optional) else found
        if inner == JSON:
            return JSON
        help = "take an item first: `[0]`" if isinstance(inner, ListOf | Table) else None
        return self._mismatch(f"`.{name}` needs a record, found {kind}", expr, help)

    def _index(self, kind: Type, position: Type, expr: Index) -> Type:
        inner = required(kind)
        if isinstance(inner, Record) and not (is_textual(required(position)) or position == JSON):
            return self._mismatch(f"a record is indexed by a text, found {position}", expr, "write `.field`")
        if inner == JSON or isinstance(inner, Record):
            return JSON
        if position not in (INT, JSON):
            return self._mismatch(f"an index is an int, found {position}", expr)
        if isinstance(inner, ListOf):
            return optional(inner.item) if isinstance(kind, Optional) else inner.item
        if isinstance(inner, Table):
            return JSON
        if is_textual(inner):
            return TEXT
        return self._mismatch(f"`[...]` needs a list, found {kind}", expr)

    def _binary(self, op: str, left: Type, right: Type, expr: Binary) -> Type:
        if op in ("and", "or"):
            return join(left, right)
        if op in ("==", "!="):
            self._comparable(left, right, expr)
            return BOOL
        first, second = required(left), required(right)
        if op in ("in", "not in"):
            if isinstance(second, ListOf) and not (fits(first, second.item) or fits(second.item, first)):
                self._mismatch(f"{first} is never in {second}", expr)
            elif not (isinstance(second, ListOf | Table | Record) or second == JSON or is_textual(second)):
                self._mismatch(f"`{op}` needs a list, a record or a text on its right, found {right}", expr)
            self._labels(first, second.item if isinstance(second, ListOf) else second, expr)
            return BOOL
        numbers = first in (*_NUMBERS, JSON) and second in (*_NUMBERS, JSON)
        texts = (is_textual(first) or first == JSON) and (is_textual(second) or second == JSON)
        if op in ("<", "<=", ">", ">="):
            if not numbers and not texts:
                self._mismatch(f"`{op}` needs two numbers or two texts, found {left} and {right}", expr)
            return BOOL
        lists = isinstance(first, ListOf) and isinstance(second, ListOf)
        if not numbers and not (op == "+" and (texts or lists)):
            wants = "two numbers, texts or lists" if op == "+" else "two numbers"
            help = "turn the value into a text first: `text(...)`" if op == "+" and TEXT in (first, second) else None
            return self._mismatch(f"`{op}` needs {wants}, found {left} and {right}", expr, help)
        if numbers:
            result: Type = JSON if JSON in (first, second) else FLOAT if op == "/" or FLOAT in (first, second) else INT
        else:
            result = join(first, second) if lists or JSON in (first, second) else TEXT
        return optional(result) if isinstance(left, Optional) or isinstance(right, Optional) else result

    def _comparable(self, left: Type, right: Type, expr: Binary) -> None:
        first, second = required(left), required(right)
        null_literal = Literal(value=None)
        if null_literal in (expr.left, expr.right):
            return
        if not (fits(first, second) or fits(second, first)):
            self._mismatch(f"{first} never equals {second}", expr)
        self._labels(first, second, expr)

    def _labels(self, first: Type, second: Type, expr: Binary) -> None:
        """A comparison of a choice with a text that is none of its labels never holds: nearly always a slip."""
        for kind, other in ((first, expr.right), (second, expr.left)):
            texts = other.items if isinstance(other, ListExpr) else (other,)
            for text in texts:
                if not isinstance(kind, Choice) or not isinstance(text, Literal) or not isinstance(text.value, str):
                    continue
                if text.value not in kind.labels:
                    near = near_match(text.value, kind.labels)
                    help = f"did you mean {quote(near)}? it is {kind}" if near else f"it is {kind}"
                    self._context.error(TypeMismatch(f"the value is never {quote(text.value)}", text.span, help))

    def _call(self, expr: Call) -> tuple[Expr, Type]:
        name = ALIASES.get(expr.function, expr.function)
        declared = self._context.functions.get(name)
        if declared is not None:
            self._context.used.add(name)
            args = self._declared_arguments(expr, declared)
            bound = [self.bind(arg) for arg in args]
            for param, (arg, kind) in zip(declared.params, bound, strict=False):
                if not fits(kind, param.type):
                    self._mismatch(f"`{name}` takes {param.type} as `{param.name}`, found {kind}", arg)
            call = replace(expr, function=self._context.qualified(name), args=tuple(arg for arg, _ in bound), named=())
            return call, declared.returns
        function = FUNCTIONS.get(name)
        if function is not None:
            args = self._arguments(expr, name, function.parameters, function.required)
            bound = [self.bind(arg) for arg in args]
            kinds = tuple(kind for _, kind in bound)
            call = replace(expr, function=name, args=tuple(arg for arg, _ in bound), named=())
            return call, self._result(name, kinds, expr)
        for kind_name, known in (("tool", self._context.tools), ("sub-workflow", self._context.uses)):
            if name in known:
                help = f"write `found = {name}(...)` on a line of its own and use `found` here"
                self._error(BindError(f"a call of a {kind_name} needs a step of its own", expr.span, help))
                return Literal(value=None), JSON
        if name in self._context.broken:
            return Literal(value=None), JSON
        known_names = [*FUNCTIONS, *self._context.functions, *self._context.tools, *self._context.uses]
        self._error(BindError(f"unknown function `{name}`", expr.span, name_help(name, known_names, "functions")))
        return Literal(value=None), JSON

    def _result(self, name: str, kinds: tuple[Type, ...], expr: Call) -> Type:
        """The type of a built-in's result; an argument that can never fit is a mistake."""
        if not kinds:
            return JSON
        subject = required(kinds[0])
        lists, texts = ("join", "reverse", "sort", "sum", "unique", "min", "max"), ("lower", "split", "trim", "upper")
        if name in (*lists, "first", "last", "take") and not isinstance(subject, ListOf | Table) and subject != JSON:
            if name in lists or not is_textual(subject):
                return self._mismatch(f"`{name}` needs a list, found {kinds[0]}", expr)
        elif name in (*texts, "replace") and not is_textual(subject) and subject != JSON:
            return self._mismatch(f"`{name}` needs a text, found {kinds[0]}", expr)
        elif name in ("abs", "round") and subject not in (*_NUMBERS, JSON):
            return self._mismatch(f"`{name}` needs a number, found {kinds[0]}", expr)
        counts = kinds if name == "range" else kinds[1:] if name in ("take", "round") else ()
        for kind in counts:
            if required(kind) not in (INT, JSON):
                return self._mismatch(f"`{name}` needs an int, found {kind}", expr)
        return FUNCTIONS[name].result(kinds)

    def _declared_arguments(self, expr: Call, declared: FunctionDecl) -> tuple[Expr, ...]:
        """The arguments of a declared function, its defaults filled in: given by position, by name, or neither."""
        parameters = tuple(param.name for param in declared.params)
        given = dict(expr.named)
        for name in given:
            if name not in parameters[len(expr.args) :]:
                help = name_help(name, parameters, "parameters")
                self._error(BindError(f"`{declared.name}` has no argument `{name}` here", expr.span, help))
        args = list(expr.args)
        for param in declared.params[len(args) :]:
            value = given.get(param.name, param.default)
            if value is None:
                self._error(BindError(f"`{declared.name}` needs `{param.name}`", expr.span))
                break
            args.append(value)
        if len(args) > len(parameters):
            takes = f"`{declared.name}` takes {len(parameters)} argument{'' if len(parameters) == 1 else 's'}"
            self._error(BindError(f"{takes} ({', '.join(parameters)}), found {len(args)}", expr.span))
        return tuple(args[: len(parameters)])

    def _arguments(self, expr: Call, name: str, parameters: tuple[str, ...], needed: int) -> tuple[Expr, ...]:
        """The arguments in the order of the parameters; too many, too few and unknown ones are mistakes."""
        args = list(expr.args)
        named = dict(expr.named)
        for parameter in parameters[len(args) :]:
            if parameter not in named:
                break
            args.append(named.pop(parameter))
        for extra in named:
            help = name_help(extra, parameters, "parameters")
            self._error(BindError(f"`{name}` has no argument `{extra}` here", expr.span, help))
        if not needed <= len(args) <= len(parameters):
            count = str(needed) if needed == len(parameters) else f"{needed} to {len(parameters)}"
            takes = f"`{name}` takes {count} argument{'' if count == '1' else 's'}"
            self._error(BindError(f"{takes} ({', '.join(parameters)}), found {len(args)}", expr.span))
            return tuple(args[: len(parameters)])
        return tuple(args)
