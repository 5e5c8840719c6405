"""Lark's tree to texts, types and expressions: what statements are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lark import Token
from lark.visitors import Transformer_NonRecursive, v_args

from helix.errors import ParseError, SourceError, TemplateError, name_help
from helix.evaluate import is_number
from helix.expr import Binary, Call, Expr, Field, Index, ListExpr, Literal, Name, RecordExpr, Unary
from helix.grammar.strings import block_value, string_value, template_value
from helix.span import Source, Span
from helix.templates.template import Template, parse_template, template
from helix.types import SCALARS, TEXT, Choice, ListOf, Optional, Record, Type
from helix.words import RESERVED

Children = list[Any]


class _Text:
    """A string token: its text, where each character stands, and the span of the token."""

    def __init__(self, text: str, origin: list[tuple[int, int]], span: Span) -> None:
        self.text = text
        self.origin = origin
        self.span = span


@v_args(meta=True)
class Values(Transformer_NonRecursive):  # type: ignore[type-arg]
    """One method for each rule of values. Mistakes that leave the tree whole are collected."""

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

    # --- types ---

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
