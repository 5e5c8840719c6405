"""Prompt templates: literal text with `{{ slots }}` and `{% blocks %}`, split once into segments.

The language is a restricted Jinja2. A slot whose content is an expression of the workflow language becomes one
(`Slot`); what only Jinja2 can do, a `{% for %}` or an unusual filter, stays an opaque `Block` whose inputs are known.
Literal text never passes through Jinja2, so it reaches the model byte for byte; a value is put in as it is and never
rendered again.

A literal `{{` is written `{{ '{{' }}`, or inside `{% raw %} ... {% endraw %}`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.evaluate import Callables, evaluator
from helix.expr import Expr, Field, Index, ListExpr, Literal, Name, RecordExpr, transform, walk
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
        if isinstance(segment, Slot):
            segment = _folded(segment)
        if isinstance(segment, Text):
            if merged and isinstance(merged[-1], Text):
                segment = Text(text=merged.pop().text + segment.text)  # type: ignore[union-attr]
            if not segment.text:
                continue
        merged.append(segment)
    return Template(segments=tuple(merged), span=span)


def _folded(slot: Slot) -> Segment:
    """The text of a constant slot; the slot itself where it varies, or fails and so has to fail in each row."""
    if any(not isinstance(part, Literal | ListExpr | RecordExpr | Field | Index) for part in walk(slot.value)):
        return slot
    try:
        return Text(text=to_text(evaluator(slot.value)(())))
    except ExpressionError:
        return slot


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

    from helix.templates.jinja import compile_block

    compiled = compile_block(block.source)
    inputs = [(name, evaluator(value, callables)) for name, value in zip(block.names, block.inputs, strict=True)]

    def render(args: Sequence[Any]) -> str:
        try:
            return compiled({name: run(args) for name, run in inputs})
        except (
            JinjaError,
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
            AttributeError,
            RecursionError,
        ) as error:
            raise ExpressionError(f"the template block does not fit this row: {error}") from None

    return render


def parse_template(text: str, span: Span | None = None, *, origin: Sequence[tuple[int, int]] | None = None) -> Template:
    """Splits a template into segments. Raises TemplateError with the place of the piece that is wrong.

    `span` is where the text stands; `origin` gives the line and column of each of its characters and of its end, where
    the source shows it otherwise (escapes, indentation).
    """
    from helix.templates.scan import OPENING, block_end, raw_text, slot_end

    def place(start: int, end: int) -> Span | None:
        if span is None or origin is None:
            return span
        (line, column), (end_line, end_column) = origin[start], origin[min(end, len(origin) - 1)]
        return Span(source=span.source, line=line, column=column, end_line=end_line, end_column=end_column)

    segments: list[Segment] = []
    position, strips = 0, False
    while opening := OPENING.search(text, position):
        start = opening.start()
        segments.append(_literal(text[position:start], strips, text.startswith("-", start + 2)))
        if text.startswith("{{", start):
            end = slot_end(text, start, place)
            segments.append(_slot(text[start:end], start, place))
        elif raw := raw_text(text, start, place):
            end = raw[1]
            segments.append(Text(text=raw[0]))
        else:
            end = block_end(text, start, place)
            segments.append(_block(text[start:end], place(start, end)))
        position, strips = end, text[end - 3] == "-"
    segments.append(_literal(text[position:], strips, False))
    return template(*segments, span=span)


def _literal(text: str, strip_start: bool, strip_end: bool) -> Text:
    text = text.lstrip() if strip_start else text
    return Text(text=text.rstrip() if strip_end else text)


def _slot(source: str, start: int, place: Callable[[int, int], Span | None]) -> Segment:
    from helix.templates.slot import slot_expression

    value = slot_expression(source, lambda first, last: place(start + first, start + last))
    return _block(source, place(start, start + len(source))) if value is None else Slot(value=value)


def _block(source: str, span: Span | None) -> Block:
    from helix.templates.jinja import block_names

    names = block_names(source, span)
    # Its outer `-` have stripped the text around it, and would strip other text if that were to change.
    mark = source[:2]
    inner = source[2:-2].removeprefix("-").removesuffix("-")
    inputs = tuple(Name(name=name, span=span) for name in names)
    return Block(source=mark + inner + source[-2:], names=names, inputs=inputs)


def text_source(name: str, text: str) -> Span:
    """The span of a text that stands alone: for templates from Python and for tests."""
    lines = text.split("\n")
    source = Source(name=name, text=text)
    return Span(source=source, line=1, column=1, end_line=len(lines), end_column=len(lines[-1]) + 1)
