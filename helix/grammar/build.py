"""Lark's tree to the syntax tree: one method for each grammar rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lark import Token, Tree
from lark.visitors import Transformer_NonRecursive, v_args

from helix.errors import ParseError, SourceError, TemplateError, name_help
from helix.evaluate import is_number
from helix.expr import Binary, Call, Expr, Field, Index, ListExpr, Literal, Name, RecordExpr, Unary
from helix.grammar.strings import block_value, string_value, template_value
from helix.span import Source, Span
from helix.syntax import (
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
from helix.template import Template, parse_template, template
from helix.types import SCALARS, TEXT, Choice, ListOf, Optional, Record, Type
from helix.words import RESERVED

Children = list[Any]


class _Text:
    """A string token: its text, where each character stands, and the span of the token."""

    def __init__(self, text: str, origin: list[tuple[int, int]], span: Span) -> None:
        self.text = text
        self.origin = origin
        self.span = span


class Builder:
    """Builds a Workflow from a parse tree; mistakes that leave the tree whole are collected in `errors`."""

    def __init__(self, source: Source) -> None:
        self.errors: list[SourceError] = []
        self._transformer = _Transformer(source, self.errors)

    def build(self, tree: Tree[Token]) -> Workflow:
        """The workflow; where `errors` is not empty afterwards, it is not to be used."""
        built = self._transformer.transform(tree)
        assert isinstance(built, Workflow)
        return built


@v_args(meta=True)
class _Transformer(Transformer_NonRecursive):  # type: ignore[type-arg]
    def __init__(self, source: Source, errors: list[SourceError]) -> None:
        super().__init__(visit_tokens=False)
        self._source = source
        self._errors = errors

    # --- places and texts ---

    def _span(self, meta: Any) -> Span | None:
        if getattr(meta, "empty", True):
            return None
        return Span(
            source=self._source,
            line=meta.line,
            column=meta.column,
            end_line=meta.end_line,
            end_column=meta.end_column,
        )

    def _token(self, token: Token) -> Span:
        line, column = token.line or 1, token.column or 1
        return Span(
            source=self._source,
            line=line,
            column=column,
            end_line=token.end_line or line,
            end_column=token.end_column or column,
        )

    def _string(self, token: Token) -> _Text:
        line, column = token.line or 1, token.column or 1
        try:
            if token.type == "BLOCK":
                text, origin = block_value(str(token), line, column)
            else:
                value = template_value if token.type == "TEMPLATE" else string_value
                text, origin = value(str(token), line, column, self._source)
        except ParseError as error:
            self._errors.append(error)
            text, origin = "", [(line, column)]
        return _Text(text, origin, self._token(token))

    def _declared(self, token: Token) -> str:
        """A name of a value: none that stands for an operator or a constant, here or in a template."""
        name = str(token)
        if name in RESERVED:
            meant = {"True": "true", "False": "false", "None": "null", "none": "null"}.get(name)
            help = f"write `{meant}`" if meant else "choose another name"
            self._errors.append(ParseError(f"`{name}` cannot be the name of a value", self._token(token), help))
        return name

    def text(self, meta: Any, children: Children) -> _Text:
        return self._string(children[0])

    content = text

    def _template(self, text: _Text) -> Template:
        try:
            return parse_template(text.text, text.span, origin=text.origin)
        except TemplateError as error:
            self._errors.append(error)
            return template(span=text.span)

    # --- the file, inputs, types ---

    def start(self, meta: Any, children: Children) -> Workflow:
        (name, params), *statements = children
        return Workflow(name=name, params=params, statements=tuple(statements), span=self._span(meta))

    def header(self, meta: Any, children: Children) -> tuple[str, tuple[Param, ...]]:
        return str(children[0]), children[1]

    def params(self, meta: Any, children: Children) -> tuple[Param, ...]:
        return tuple(children)

    def param(self, meta: Any, children: Children) -> Param:
        default = children[2] if len(children) > 2 else None
        return Param(name=self._declared(children[0]), type=children[1], default=default, span=self._token(children[0]))

    def type(self, meta: Any, children: Children) -> Type:
        kind: Type = children[0]
        if len(children) > 1 and not isinstance(kind, Optional):
            return Optional(kind)
        return kind

    def type_name(self, meta: Any, children: Children) -> Type:
        name = str(children[0])
        if name in SCALARS:
            return SCALARS[name]
        known = [*SCALARS, "list", "choice"]
        needs = {"list": "write what it holds: `list[text]`", "choice": 'write its labels: `choice["yes", "no"]`'}
        aliases = {
            "str": "text",
            "string": "text",
            "integer": "int",
            "number": "float",
            "boolean": "bool",
            "object": "json",
        }
        if name in aliases:
            help = f"did you mean `{aliases[name]}`? types: {', '.join(sorted(known))}"
        else:
            help = needs.get(name) or name_help(name, known, "types")
        self._errors.append(ParseError(f"unknown type `{name}`", self._token(children[0]), help))
        return TEXT

    def type_list(self, meta: Any, children: Children) -> Type:
        return ListOf(children[0])

    def type_choice(self, meta: Any, children: Children) -> Type:
        labels = tuple(child.text for child in children)
        seen: set[str] = set()
        for child in children:
            if child.text in seen:
                self._errors.append(ParseError(f"label `{child.text}` stands twice in one choice", child.span))
            elif not child.text.strip():
                self._errors.append(ParseError("a label of a choice cannot be blank", child.span))
            seen.add(child.text)
        return Choice(labels)

    def type_record(self, meta: Any, children: Children) -> Type:
        fields: dict[str, Type] = {}
        for key, kind, *default in children:
            name, span = self._key(key)
            if name in fields:
                self._errors.append(ParseError(f"field `{name}` stands twice in one record", span))
            if default:
                self._errors.append(ParseError("a field of a record has no default", span, "make it optional: `?`"))
            fields[name] = kind
        return Record(tuple(fields.items()))

    def type_field(self, meta: Any, children: Children) -> Children:
        return children

    def _key(self, key: Name | Token) -> tuple[str, Span | None]:
        """A field's name, written as a name or in quotes."""
        if isinstance(key, Name):
            return key.name, key.span
        text = self._string(key)
        return text.text, text.span

    # --- declarations ---

    def let(self, meta: Any, children: Children) -> Let:
        return Let(name=self._declared(children[0]), value=children[1], span=self._token(children[0]))

    def model(self, meta: Any, children: Children) -> ModelDecl:
        return ModelDecl(name=str(children[0]), options=children[1], span=self._token(children[0]))

    def options(self, meta: Any, children: Children) -> tuple[Option, ...]:
        return tuple(children)

    def option(self, meta: Any, children: Children) -> Option:
        return Option(name=str(children[0]), value=children[1], span=self._span(meta))

    def tool(self, meta: Any, children: Children) -> ToolDecl:
        name, params, returns, origin, target, traits = children
        return ToolDecl(
            name=self._declared(name),
            params=params,
            returns=returns,
            origin=str(origin),
            target=self._string(target).text,
            traits=traits,
            span=self._token(name),
        )

    def traits(self, meta: Any, children: Children) -> tuple[Option, ...]:
        return tuple(children)

    def trait(self, meta: Any, children: Children) -> Option:
        return Option(name=str(children[0]), value=children[1], span=self._span(meta))

    def function(self, meta: Any, children: Children) -> FunctionDecl:
        name, params, returns, origin, target = children
        if str(origin) != "python":
            self._errors.append(
                ParseError(
                    f"a function comes from python, found `{origin}`", self._token(origin), 'from python "module:name"'
                )
            )
        return FunctionDecl(
            name=self._declared(name),
            params=params,
            returns=returns,
            target=self._string(target).text,
            span=self._token(name),
        )

    def use(self, meta: Any, children: Children) -> UseDecl:
        return UseDecl(path=self._string(children[0]).text, name=self._declared(children[1]), span=self._span(meta))

    # --- steps ---

    def step(self, meta: Any, children: Children) -> Step:
        name, value = children[0], children[1]
        when = children[2] if len(children) > 2 else None
        return Step(
            name=self._declared(name), value=value, when=when, span=self._span(meta), name_span=self._token(name)
        )

    def llm(self, meta: Any, children: Children) -> Llm:
        model, options, returns = None, (), None
        parts: list[Any] = []
        for child in children:
            if isinstance(child, Token):
                model = str(child)
            elif isinstance(child, tuple):
                options = child
            elif isinstance(child, Type):
                returns = child
            else:
                parts.append(child)
        return Llm(model=model, options=options, returns=returns, parts=tuple(parts), span=self._span(meta))

    def message(self, meta: Any, children: Children) -> MessagePart:
        return MessagePart(role=str(children[0]), content=self._template(children[1]), span=self._span(meta))  # type: ignore[arg-type]

    def history(self, meta: Any, children: Children) -> HistoryPart:
        return HistoryPart(value=children[0], span=self._span(meta))

    def unordered(self, meta: Any, children: Children) -> UnorderedPart:
        role = "user"
        if children and isinstance(children[0], Token):
            role, children = str(children[0]), children[1:]
        return UnorderedPart(role=role, parts=tuple(children), span=self._span(meta))  # type: ignore[arg-type]

    def part(self, meta: Any, children: Children) -> Template:
        return self._template(children[0])

    def for_(self, meta: Any, children: Children) -> For:
        variable, over, body, result = children
        return For(variable=self._declared(variable), over=over, body=body, result=result, span=self._token(variable))

    def body(self, meta: Any, children: Children) -> tuple[Statement, ...]:
        return tuple(children)

    def if_(self, meta: Any, children: Children) -> If:
        arms = [(children[0], children[1])]
        otherwise: tuple[Statement, ...] = ()
        for tag, *rest in children[2:]:
            if tag == "else_if":
                arms.append((rest[0], rest[1]))
            else:
                otherwise = rest[0]
        return If(arms=tuple(arms), otherwise=otherwise, span=self._span(meta))

    def else_if(self, meta: Any, children: Children) -> tuple[Any, ...]:
        return ("else_if", *children)

    def else_(self, meta: Any, children: Children) -> tuple[Any, ...]:
        return ("else", *children)

    def repeat(self, meta: Any, children: Children) -> Repeat:
        until = children[1] if len(children) > 2 else None
        return Repeat(times=children[0], until=until, body=children[-1], span=self._span(meta))

    # --- over the whole table ---

    def keep(self, meta: Any, children: Children) -> Keep:
        return Keep(condition=children[0], span=self._span(meta))

    def spread(self, meta: Any, children: Children) -> Spread:
        return Spread(value=children[0], name=self._declared(children[1]), span=self._span(meta))

    def group(self, meta: Any, children: Children) -> GroupBy:
        return GroupBy(
            keys=tuple(self._declared(key) for key in children[:-1]), body=children[-1], span=self._span(meta)
        )

    def sort(self, meta: Any, children: Children) -> Sort:
        return Sort(keys=tuple(children), span=self._span(meta))

    def sort_key(self, meta: Any, children: Children) -> tuple[Expr, bool]:
        return children[0], len(children) > 1 and str(children[1]) == "desc"

    def limit(self, meta: Any, children: Children) -> Limit:
        return Limit(count=children[0], span=self._span(meta))

    def output(self, meta: Any, children: Children) -> Output:
        return Output(items=tuple(children), span=self._span(meta))

    def item(self, meta: Any, children: Children) -> OutputItem:
        value: Expr = children[0]
        if len(children) > 1:
            return OutputItem(value=value, name=str(children[1]), span=self._span(meta))
        name = value.name if isinstance(value, Name | Field) else ""
        if not name:
            message = "a column that is not a plain name needs one"
            self._errors.append(ParseError(message, self._span(meta), "write `... as name`"))
        return OutputItem(value=value, name=name, span=self._span(meta))

    # --- expressions ---

    def _chain(self, meta: Any, children: Children, op: str) -> Expr:
        result: Expr = children[0]
        for right in children[2::2]:
            result = Binary(op=op, left=result, right=right, span=self._span(meta))
        return result

    def expr(self, meta: Any, children: Children) -> Expr:
        return self._chain(meta, children, "or")

    def and_expr(self, meta: Any, children: Children) -> Expr:
        return self._chain(meta, children, "and")

    def unary(self, meta: Any, children: Children) -> Expr:
        op, operand = str(children[0]), children[1]
        if op == "-" and isinstance(operand, Literal) and is_number(operand.value):
            return Literal(value=-operand.value, span=self._span(meta))
        return Unary(op=op, operand=operand, span=self._span(meta))

    def not_in(self, meta: Any, children: Children) -> str:
        return "not in"

    def comparison(self, meta: Any, children: Children) -> Expr:
        left, op, right = children
        return Binary(op=str(op), left=left, right=right, span=self._span(meta))

    def sum(self, meta: Any, children: Children) -> Expr:
        result: Expr = children[0]
        for op, right in zip(children[1::2], children[2::2], strict=True):
            result = Binary(op=str(op), left=result, right=right, span=self._span(meta))
        return result

    product = sum

    def field(self, meta: Any, children: Children) -> Expr:
        return Field(base=children[0], name=children[1].name, span=self._span(meta))

    def index(self, meta: Any, children: Children) -> Expr:
        base, position = children
        if isinstance(position, Literal) and isinstance(position.value, str):
            return Field(base=base, name=position.value, span=self._span(meta))
        return Index(base=base, index=position, span=self._span(meta))

    def list_(self, meta: Any, children: Children) -> Expr:
        return ListExpr(items=tuple(children), span=self._span(meta))

    def record(self, meta: Any, children: Children) -> Expr:
        twice = _twice(name for name, _ in children)
        if twice is not None:
            self._errors.append(ParseError(f"field `{twice}` stands twice in one record", self._span(meta)))
        return RecordExpr(fields=tuple(children), span=self._span(meta))

    def record_field(self, meta: Any, children: Children) -> tuple[str, Expr]:
        return self._key(children[0])[0], children[1]

    def call(self, meta: Any, children: Children) -> Expr:
        name, *arguments = children
        named = tuple(argument for argument in arguments if isinstance(argument, tuple))
        positional = tuple(argument for argument in arguments if not isinstance(argument, tuple))
        twice = _twice(key for key, _ in named)
        if twice is not None:
            self._errors.append(ParseError(f"argument `{twice}` stands twice in one call", self._span(meta)))
        if tuple(arguments) != (*positional, *named):
            message = "an argument without a name stands after one with a name"
            self._errors.append(ParseError(message, self._span(meta), "the arguments with names come last"))
        return Call(function=str(name), args=positional, named=named, span=self._span(meta))

    def named_argument(self, meta: Any, children: Children) -> tuple[str, Expr]:
        return str(children[0]), children[1]

    def name(self, meta: Any, children: Children) -> Name:
        return Name(name=str(children[0]), span=self._token(children[0]))

    def word(self, meta: Any, children: Children) -> Name:
        return Name(name=self._declared(children[0]), span=self._token(children[0]))

    def duration(self, meta: Any, children: Children) -> Expr:
        return Literal(value=str(children[0]), span=self._token(children[0]))

    def literal(self, meta: Any, children: Children) -> Expr:
        child = children[0]
        if isinstance(child, _Text):
            return Literal(value=child.text, span=child.span)
        span = self._token(child)
        constants = {"TRUE": True, "FALSE": False, "NULL": None}
        if child.type in constants:
            return Literal(value=constants[child.type], span=span)
        text = str(child)
        if any(char in text for char in ".eE"):
            number = float(text)
            if number - number != 0:
                self._errors.append(ParseError(f"`{text}` is not a finite number", span))
                number = 0.0
            return Literal(value=number, span=span)
        if len(text) > 1000:
            self._errors.append(ParseError("a number of more than 1000 digits", span))
            return Literal(value=0, span=span)
        return Literal(value=int(text), span=span)


def _twice(names: Iterable[str]) -> str | None:
    """The first name that has stood before, or None."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
