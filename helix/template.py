"""Prompt templates: literal text with `{{ slots }}` and `{% blocks %}`, split once into segments.

The language is a restricted Jinja2. A slot whose content is an expression of the workflow language becomes one
(`Slot`); what only Jinja2 can do, a `{% for %}` or an unusual filter, stays an opaque `Block` whose inputs are known.
Literal text never passes through Jinja2, so it reaches the model byte for byte; a value is put in as it is and never
rendered again.

A literal `{{` is written `{{ '{{' }}`, or inside `{% raw %} ... {% endraw %}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.errors import TemplateError
from helix.evaluate import Callables, evaluator
from helix.expr import Expr, Name, transform, walk
from helix.functions import ExpressionError, to_text
from helix.span import Source, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A literal stretch of a template."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A value put in as text."""

    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch that Jinja2 renders. `names` are its free variables, sorted; `inputs` gives each its value."""

    source: str
    names: tuple[str, ...]
    inputs: tuple[Expr, ...]


Segment = Text | Slot | Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A prompt's text as segments: no two Texts side by side, none empty."""

    segments: tuple[Segment, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions of its slots and blocks, in order."""
        found: list[Expr] = []
        for segment in self.segments:
            if isinstance(segment, Slot):
                found.append(segment.value)
            elif isinstance(segment, Block):
                found.extend(segment.inputs)
        return tuple(found)


def template(*segments: Segment, span: Span | None = None) -> Template:
    """A template in normal form: constants folded into the text around them, neighbouring texts merged."""
    merged: list[Segment] = []
    for segment in segments:
        if isinstance(segment, Slot) and not any(_varies(part) for part in walk(segment.value)):
            segment = Text(text=to_text(evaluator(segment.value)(())))
        if isinstance(segment, Text):
            if merged and isinstance(merged[-1], Text):
                segment = Text(text=merged.pop().text + segment.text)  # type: ignore[union-attr]
            if not segment.text:
                continue
        merged.append(segment)
    return Template(segments=tuple(merged), span=span)


def _varies(part: Expr) -> bool:
    from helix.expr import Field, Index, ListExpr, Literal, RecordExpr

    return not isinstance(part, Literal | ListExpr | RecordExpr | Field | Index)


def map_template(subject: Template, leaf: Callable[[Expr], Expr]) -> Template:
    """The template with `leaf` applied to each name in its slots and blocks, back in normal form."""
    changed: list[Segment] = []
    for segment in subject.segments:
        if isinstance(segment, Slot):
            changed.append(Slot(value=transform(segment.value, leaf)))
        elif isinstance(segment, Block):
            inputs = tuple(transform(value, leaf) for value in segment.inputs)
            changed.append(Block(source=segment.source, names=segment.names, inputs=inputs))
        else:
            changed.append(segment)
    return template(*changed, span=subject.span)


def renderer(subject: Template, callables: Callables | None = None) -> Callable[[Sequence[Any]], str]:
    """The function that renders a bound template from the values of its inputs; raises ExpressionError."""
    parts: list[Callable[[Sequence[Any]], str]] = []
    for segment in subject.segments:
        match segment:
            case Text(text=text):
                parts.append(lambda args, text=text: text)  # type: ignore[misc]
            case Slot(value=value):
                run = evaluator(value, callables)
                parts.append(lambda args, run=run: to_text(run(args)))  # type: ignore[misc]
            case Block():
                parts.append(_block_renderer(segment, callables))
    if len(parts) == 1:
        return parts[0]
    return lambda args: "".join([part(args) for part in parts])


def _block_renderer(block: Block, callables: Callables | None) -> Callable[[Sequence[Any]], str]:
    from jinja2.exceptions import TemplateError as JinjaError

    from helix.jinja import compile_block

    compiled = compile_block(block.source)
    inputs = [(name, evaluator(value, callables)) for name, value in zip(block.names, block.inputs, strict=True)]

    def render(args: Sequence[Any]) -> str:
        try:
            return compiled({name: run(args) for name, run in inputs})
        except (JinjaError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise ExpressionError(f"the template block does not fit this row: {error}") from None

    return render


_OPENING = re.compile(r"\{\{|\{%")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'", re.DOTALL)
_RAW_END = re.compile(r"\{%-?\s*endraw\s*-?%\}")
_TAG = re.compile(r"\{%[-+]?\s*(\w+)")
_OPENERS = ("if", "for")


def parse_template(text: str, span: Span | None = None, *, origin: Sequence[tuple[int, int]] | None = None) -> Template:
    """Splits a template into segments. Raises TemplateError with the place of the piece that is wrong.

    `span` is where the text stands; `origin` gives the line and column of each of its characters and of its end, where
    the source shows it otherwise (escapes, indentation).
    """
    from helix.jinja import block_names, slot_expression

    def place(start: int, end: int) -> Span | None:
        if span is None or origin is None:
            return span
        (line, column), (end_line, end_column) = origin[start], origin[min(end, len(origin) - 1)]
        return Span(source=span.source, line=line, column=column, end_line=end_line, end_column=end_column)

    segments: list[Segment] = []
    position, strip_next = 0, False

    def literal(stop: int, strip_end: bool) -> None:
        piece = text[position:stop]
        if strip_next:
            piece = piece.lstrip()
        segments.append(Text(text=piece.rstrip() if strip_end else piece))

    while opening := _OPENING.search(text, position):
        start = opening.start()
        literal(start, text.startswith("-", start + 2))
        if text.startswith("{{", start):
            end = _closing(text, start + 2, "}}")
            if end is None:
                raise TemplateError(
                    "`{{` without its `}}`", place(start, start + 2), "a literal `{{` is written `{{ '{{' }}`"
                )
            source = text[start:end]
            value = slot_expression(source, lambda a, b, s=start: place(s + a, s + b))  # type: ignore[misc]
            if value is None:
                segments.append(_block(source, block_names(source, place(start, end)), place(start, end)))
            else:
                segments.append(Slot(value=value))
        else:
            raw = re.match(r"\{%-?\s*raw\s*-?%\}", text[start:])
            if raw:
                closing = _RAW_END.search(text, start)
                if closing is None:
                    raise TemplateError("`{% raw %}` without its `{% endraw %}`", place(start, start + len(raw[0])))
                segments.append(Text(text=text[start + len(raw[0]) : closing.start()]))
                end = closing.end()
            else:
                end = _block_end(text, start, place)
                source = text[start:end]
                segments.append(_block(source, block_names(source, place(start, end)), place(start, end)))
        strip_next = text[end - 3] == "-"
        position = end
    literal(len(text), False)
    return template(*segments, span=span)


def _block(source: str, names: tuple[str, ...], span: Span | None) -> Block:
    return Block(source=source, names=names, inputs=tuple(Name(name=name, span=span) for name in names))


def _closing(text: str, position: int, mark: str) -> int | None:
    """The end of the first closing mark outside quotes, or None."""
    while position < len(text):
        if text.startswith(mark, position):
            # `}}}` closes after a record literal: the mark is the last two braces.
            return position + 3 if text.startswith("}}}", position) and mark == "}}" else position + 2
        quoted = _QUOTED.match(text, position)
        position = quoted.end() if quoted else position + 1
    return None


def _block_end(text: str, start: int, place: Callable[[int, int], Span | None]) -> int:
    """The end of the block that the tag at `start` opens, nested blocks counted."""
    depth, position = 0, start
    while tag := _TAG.search(text, position):
        end = _closing(text, tag.end(), "%}")
        where = place(tag.start(), tag.end())
        if end is None:
            raise TemplateError("`{%` without its `%}`", where, "a literal `{%` is written `{{ '{%' }}`")
        word = tag[1]
        if depth == 0 and word not in _OPENERS:
            help = "templates have `{% if %}`, `{% for %}` and `{% raw %}`; a literal `{%` is written `{{ '{%' }}`"
            raise TemplateError(f"`{{% {word} %}}` cannot stand here", where, help)
        if word in _OPENERS:
            depth += 1
        elif word in ("endif", "endfor"):
            depth -= 1
        elif word not in ("else", "elif", "set"):
            raise TemplateError(
                f"templates have no `{{% {word} %}}`", where, "templates have `if`, `for`, `set` and `raw`"
            )
        if depth == 0:
            return end
        position = end
    if depth == 0:
        raise TemplateError("`{%` without a word", place(start, start + 2), "a literal `{%` is written `{{ '{%' }}`")
    raise TemplateError(
        "a block without its end", place(start, start + 2), "each `{% if %}` and `{% for %}` needs its end"
    )


def text_source(name: str, text: str) -> Span:
    """The span of a text that stands alone: for templates from Python and for tests."""
    lines = text.split("\n")
    source = Source(name=name, text=text)
    return Span(source=source, line=1, column=1, end_line=len(lines), end_column=len(lines[-1]) + 1)
