"""The plan text of a logical plan: what `helix explain` prints and what golden files hold.

One operator a line; what a line reads stands below it, so a plan is read from the bottom up, like a query plan:

    Sink ticket, category, reply=reply#2, note=review.note
      Repeat review, reply#2 up to 3 carrying reply
        body -> review, reply=reply#2 until review.ok
          Generate reply#2 model=SmolLM2-135M
            user "Improve {reply} by {review.note}"
          Generate review model=SmolLM2-135M -> { ok: bool, note: text }
            user "Judge: {reply}"
      Generate reply model=SmolLM2-135M
        user "Answer: {ticket}"
      Filter when urgent
        Generate category model=SmolLM2-135M -> choice["billing", "bug"]
          user "{ticket}"
        Scan ticket: text, urgent: bool = false

- Relations (`Sink`, `Limit`, `Sort`, `GroupReduce`, `Unnest`, `Filter`, `Scan`) are the spine, each below the one that
  reads it. The steps that run over the rows of a relation stand just above it, at its indentation, the last one first.
- A step goes by its name. Of a name that means two values in one scope, the second is `name#2`: in a loop `reply` is
  what came round and `reply#2` what this round makes of it. A sub-plan is a scope of its own, and so are the rows
  after a `GroupReduce`.
- Columns, constants, pure expressions and texts stand where they are read. One that several operators read has a
  line of its own, under its name or as `r0 := Apply ...`, and goes by that name; a short text or a mere field of a
  value has not.
- In a prompt `{ticket}` is a value; a brace of the text itself is doubled. `name=value` gives a value another name.
- Sub-plans stand below their operator as `then`, `otherwise` and `body`, each with what it gives. A branch that is
  not there gives null. After `also` stand steps that are run though nobody reads them. What a sub-plan reads from
  outside keeps its name, unless the operator says `with name=value`.
- `grouped by` after the columns of a `Scan`: in that order rows are worked on; the result keeps the table's order.
  `known` is the text of a reply that is not asked for again.
- What every agent is told of its tools and of how it replies is left out of its prompt; the tools stand above it.
- Settings at their default, and the type text, are left out.

The text depends on the plan alone: two processes print the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

from helix.agents import own_prompt
from helix.canonical import to_json_text
from helix.errors import cell_width
from helix.labels import Labels, Piece, captured, escaped
from helix.logical import (
    UNHASHED,
    Agent,
    Apply,
    Body,
    Choose,
    Const,
    Fetch,
    Filter,
    Generate,
    GroupReduce,
    Invoke,
    Limit,
    LogicalPlan,
    Map,
    Model,
    Node,
    Relation,
    Render,
    Repeat,
    Scan,
    Sort,
    Tool,
    Unnest,
    Value,
    body_nodes,
    encode,
    readable,
    spine,
    topological,
)
from helix.schema import Column, has_default
from helix.types import TEXT, Type, is_word, quote

Style = Literal["", "operator", "name", "text", "quiet"]
_COLOURS: dict[Style, str] = {"operator": "36", "name": "1", "text": "32", "quiet": "2"}
_CONTINUED = 4
# What of a `Fetch` is not shown as a setting.
_FETCHED = ("type", "rows", "step", "text", "returns")
_SHORTEST = 12


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a line that is not broken. `pieces` make up a text in quotes, which may be shortened inside."""

    text: str
    style: Style = ""
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class _Line:
    depth: int
    parts: tuple[_Part, ...]


def plan_text(plan: LogicalPlan, *, width: int | None = None, color: bool = False) -> str:
    """A plan as text, ending in a line break; see the module for how to read it.

    No line is wider than `width` terminal cells (None: no limit): texts are shortened to `...` and long lines go on
    in the next, indented by four more. `color` adds ANSI colours.
    """
    lines = _plan_lines(plan)
    limit = None if width is None else max(width, _SHORTEST)
    return "".join(f"{text}\n" for line in lines for text in _fit(line, limit, color))


def _plan_lines(plan: LogicalPlan) -> Iterator[_Line]:
    sink = plan.sink
    relations = spine(sink.rows)
    nodes = tuple(node for node in topological(sink) if node != sink)
    labels = Labels(nodes, (sink.columns, (("", value) for value in sink.also)), relations)
    columns = _list(_given(name, value, labels) for name, value in sink.columns)
    also = [_Part("also", "quiet"), *_list(labels.text(value) for value in sink.also)] if sink.also else []
    yield _Line(0, (_Part("Sink", "operator"), *columns, *also))
    for level in range(len(relations) - 1, -1, -1):
        depth = len(relations) - level
        yield from _steps(nodes, labels, level, depth)
        yield _Line(depth, tuple(_relation(relations[level], labels)))


def _steps(nodes: tuple[Node, ...], labels: Labels, level: int, depth: int) -> Iterator[_Line]:
    for node in reversed(nodes):
        if node.id in labels.lined and labels.level(node) == level:
            yield from _step(node, labels, depth)


def _body(body: Body, label: str, depth: int) -> Iterator[_Line]:
    """A sub-plan: what it gives, and below it its steps."""
    nodes = body_nodes(body)
    labels = Labels(nodes, (body.results,), (body.parameters,))
    given = [
        labels.text(value) if name == "yield" else _given(name, value, labels)
        for name, value in body.results
        if readable(name)
    ]
    until = dict(body.results).get(Repeat.UNTIL)
    hidden = [value for name, value in body.results if not readable(name) and name != Repeat.UNTIL]
    also = [labels.text(value) for value in hidden if not _is_null(value)]
    stop = [_Part("until", "quiet"), _Part(labels.text(until))] if until is not None else []
    if also:
        stop += [_Part("also", "quiet"), *_list(also)]
    yield _Line(depth, (_Part(label, "quiet"), _Part("->", "quiet"), *_list(given), *stop))
    yield from _steps(nodes, labels, 0, depth + 1)


# --- operators ----------------------------------------------------------------------------------------------------


def _relation(relation: Relation, labels: Labels) -> Iterator[_Part]:
    yield _Part(type(relation).__name__, "operator")
    match relation:
        case Scan(columns=columns, order=order):
            yield from _list(_column(column) for column in columns)
            if order:
                yield from (_Part("grouped by", "quiet"), *_list(order))
        case Filter(condition=condition):
            yield from (_Part("when", "quiet"), _Part(labels.text(condition)))
        case Unnest(name=name, value=value):
            yield from (_Part(name, "name"), _Part("from", "quiet"), _Part(labels.text(value)))
        case GroupReduce(keys=keys, columns=columns):
            yield _Part("by", "quiet")
            yield from _list(_given(name, value, labels) for name, value in keys)
            yield _Part("rows", "quiet")
            yield from _list(_given(name, value, labels) for name, value in columns)
        case Sort(keys=keys):
            yield _Part("by", "quiet")
            yield from _list(labels.text(value) + (" desc" if descending else "") for value, descending in keys)
        case Limit(count=count):
            yield _Part(str(count))
        case _:
            yield from _fields(relation, labels, ("rows",))


def _step(node: Node, labels: Labels, depth: int) -> Iterator[_Line]:
    """A step with what stands below it: its prompt or its sub-plans."""
    operator = _Part(type(node).__name__, "operator")
    name = _Part(labels.name(node) or "", "name")
    inside: Iterable[_Line] = ()
    match node:
        case Agent(returns=returns, tools=tools):
            parts = [operator, name, *_generate(node, labels), *_returns(returns)]
            told = [_Line(depth + 1, tuple(_tool(tool))) for tool in tools]
            inside = (*told, *_prompt(node, labels, depth + 1))
        case Generate(returns=returns):
            parts = [operator, name, *_generate(node, labels), *_returns(returns)]
            inside = _prompt(node, labels, depth + 1)
        case Fetch(text=text, returns=returns):
            piece = ((True, escaped(text)),)
            parts = [
                operator,
                name,
                *_changed(node, _FETCHED),
                *_returns(returns),
                _Part("known", "quiet"),
                _text(piece),
            ]
        case Invoke(tool=tool):
            parts = [operator, name, *_invoke(node, labels), *_returns(tool.returns)]
        case Map(over=over, body=body):
            item = next(iter(body.parameters.columns), ("", TEXT))[0]
            parts = [operator, name, _Part("for", "quiet"), _Part(item), _Part("in", "quiet")]
            parts += [_Part(labels.text(over)), *_with(node, labels)]
            inside = _body(body, "body", depth + 1)
        case Choose(condition=condition):
            parts = [operator, *_list(labels.names(node), "name"), _Part("if", "quiet"), _Part(labels.text(condition))]
            parts += _with(node, labels)
            arms = (("then", node.then), ("otherwise", node.otherwise))
            inside = (line for part, body in arms if not _gives_null(body) for line in _body(body, part, depth + 1))
        case Repeat(times=times, carried=carried, body=body):
            parts = [operator, *_list(labels.names(node), "name"), _Part("up to", "quiet"), _Part(str(times))]
            if carried:
                parts += [_Part("carrying", "quiet"), *_list(_given(name, value, labels) for name, value in carried)]
            parts += _with(node, labels)
            inside = _body(body, "body", depth + 1)
        case Apply():
            parts = [name, _Part(":=", "quiet"), operator, _Part(labels.apply(node))]
        case Render():
            parts = [name, _Part(":=", "quiet"), operator, _text(labels.template(node))]
        case _:
            named = [name] if name.text else []
            parts = [operator, *named, *_fields(node, labels, ("rows", "step"))]
    yield _Line(depth, tuple(parts))
    yield from inside


def _generate(node: Generate, labels: Labels) -> Iterator[_Part]:
    model = node.model
    if model.name is not None:
        yield _setting("model", _word(model.name))
    yield from _changed(model, ("name", "extra"))
    for name, json in model.extra:
        yield _setting(f"extra.{name}", json)
    left_out = ("type", "rows", "step", "model", "prompt", "returns", "on_overflow", "tools")
    yield from _changed(node, left_out)
    if node.on_overflow is not None:
        cut = node.on_overflow
        value = _given(cut.name, cut.value, labels)
        yield _setting("on_overflow", f"truncate({value}, keep: {cut.keep})")


def _invoke(node: Invoke, labels: Labels) -> Iterator[_Part]:
    tool = node.tool
    args = ", ".join(_given(param.name, value, labels) for param, value in zip(tool.params, node.args, strict=False))
    yield _Part(f"{tool.name}({args})")
    yield from _source(tool)


def _source(tool: Tool) -> Iterator[_Part]:
    yield _setting("from", f"{tool.origin}:{_word(tool.target)}")
    yield from _changed(tool, ("name", "origin", "target", "params", "returns"))


def _tool(tool: Tool) -> Iterator[_Part]:
    """A tool that an agent may call."""
    yield _Part("tool", "quiet")
    yield _Part(f"{tool.name}({', '.join(_column(param) for param in tool.params)})")
    yield from _source(tool)
    yield from _returns(tool.returns)


def _prompt(node: Generate, labels: Labels, depth: int) -> Iterator[_Line]:
    for part in own_prompt(node):
        role = _Part(part.role, "quiet")
        if part.role == "history":
            yield _Line(depth, (role, *_list(labels.text(value) for value in part.content)))
        elif part.unordered:
            yield _Line(depth, (role, _Part("unordered", "quiet")))
            for value in part.content:
                yield _Line(depth + 1, (_Part("part", "quiet"), _text(labels.pieces(value))))
        else:
            yield from (_Line(depth, (role, _text(labels.pieces(value)))) for value in part.content)


def _with(node: Node, labels: Labels) -> list[_Part]:
    """What a sub-plan reads from outside under another name than there."""
    renamed = [f"{name}={text}" for name, value in captured(node).items() if (text := labels.text(value)) != name]
    return [_Part("with", "quiet"), *_list(renamed)] if renamed else []


def _gives_null(body: Body) -> bool:
    return all(_is_null(value) for _, value in body.results)


def _is_null(value: Value) -> bool:
    return isinstance(value, Const) and value.json == "null"


# --- pieces -------------------------------------------------------------------------------------------------------


def _list(texts: Iterable[str], style: Style = "") -> list[_Part]:
    """Parts with commas between them, so that a line breaks after a comma."""
    listed = list(texts)
    return [_Part(text + ("," if place + 1 < len(listed) else ""), style) for place, text in enumerate(listed)]


def _given(name: str, value: Value, labels: Labels) -> str:
    text = labels.text(value)
    return text if text == name else f"{name}={text}"


def _column(column: Column) -> str:
    default = f" = {to_json_text(column.default)}" if has_default(column) else ""
    return f"{column.name}: {column.type}{default}"


def _returns(kind: Type) -> list[_Part]:
    return [] if kind == TEXT else [_Part(f"-> {kind}")]


def _text(pieces: tuple[Piece, ...]) -> _Part:
    return _Part('"' + "".join(text for _, text in pieces) + '"', "text", pieces)


def _setting(name: str, value: str) -> _Part:
    return _Part(f"{name}={value}")


def _changed(record: Node | Model | Tool, left_out: tuple[str, ...]) -> Iterator[_Part]:
    """The settings of a record that are not at their default, as the language writes them."""
    for each in fields(record):
        value = getattr(record, each.name)
        if each.name in (*left_out, *UNHASHED) or value == each.default:
            continue
        if each.name in ("timeout", "cost", "max_time") and value is not None:
            yield _setting(each.name, f"{value:g}s" if float(f"{value:g}") == value else f"{value!r}s")
        else:
            yield _setting(each.name, _value(value))


def _fields(node: Node, labels: Labels, left_out: tuple[str, ...]) -> Iterator[_Part]:
    """All fields of an operator that has no form of its own here."""
    for each in fields(node):
        value = getattr(node, each.name)
        if each.name in (*left_out, *UNHASHED) or value == each.default:
            continue
        yield _setting(each.name, labels.text(value) if isinstance(value, Value) else _value(value))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return _word(value)
    if isinstance(value, Type):
        return str(value)
    if value is None or isinstance(value, int | float):
        return to_json_text(value)
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return f"[{', '.join(quote(item) for item in value)}]"
    return to_json_text(encode(value))


def _word(text: str) -> str:
    """A text without quotes where it can be read without them."""
    plain = all(is_word(char) or char.isdecimal() or char in "-./:@+" for char in text)
    return text if text and plain else quote(text)


# --- layout -------------------------------------------------------------------------------------------------------


def _fit(line: _Line, width: int | None, color: bool) -> Iterator[str]:
    """A line as one or more lines that are not too wide; only white space between parts is broken."""
    indent = "  " * line.depth
    if width is None:
        yield indent + " ".join(_paint(part.text, part.style, color) for part in line.parts)
        return
    # Deep in a plan there is still room for a few words.
    indent = indent[: max(0, width - _SHORTEST)]
    more = indent + " " * min(_CONTINUED, max(0, width - len(indent) - _SHORTEST))
    shown, used = [indent], len(indent)
    for place, part in enumerate(line.parts):
        gap = 0 if len(shown) == 1 else 1
        free = width - used - gap
        room = width - len(more)
        if place and cells(part.text) > free and not (part.pieces and free >= _SHORTEST):
            yield "".join(shown)
            shown, used, gap, free = [more], len(more), 0, room
        text = _shorten(part, free)
        shown.append(" " * gap + _paint(text, part.style, color))
        used += gap + cells(text)
    yield "".join(shown)


def _shorten(part: _Part, room: int) -> str:
    """A part in no more than `room` cells: literal stretches of a text first, so that its values stay in sight."""
    if cells(part.text) <= room:
        return part.text
    if part.pieces:
        # The most that each literal stretch may keep, found by bisection: what fits grows with it.
        low, high = 3, max(3, *(cells(text) for _, text in part.pieces))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if cells(_quoted(part.pieces, middle)) <= room else (low, middle - 1)
        return _head(_quoted(part.pieces, low), room)
    return _head(part.text, room)


def _quoted(pieces: tuple[Piece, ...], longest: int) -> str:
    return '"' + "".join(_head(text, longest) if literal else text for literal, text in pieces) + '"'


def _head(text: str, room: int) -> str:
    """The beginning of a text in no more than `room` cells, `...` in place of the rest."""
    if cells(text) <= room:
        return text
    kept, used = [], 0
    for char in text:
        used += cell_width(char)
        if used > room - 3:
            break
        kept.append(char)
    return "".join(kept) + "..."


def cells(text: str) -> int:
    """How many terminal cells a text takes."""
    return len(text) if text.isascii() else sum(cell_width(char) for char in text)


def _paint(text: str, style: Style, color: bool) -> str:
    return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if color and style else text
