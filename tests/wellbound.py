"""Random workflows that are right: as text, with input rows that fit them.

Every statement and every kind of expression can come up, nested, with all types of inputs. A workflow drawn here parses
and binds; what its steps then make of a row may still fail (an index out of range), as in real life.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st
from values import values

from helix.types import (
    BOOL,
    FLOAT,
    INT,
    JSON,
    NULL,
    TEXT,
    Choice,
    ListOf,
    Optional,
    Record,
    Type,
    join,
    optional,
    quote,
)

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True, kw_only=True)
class TestTool:
    """A tool that workflows may call: how it is declared, what it takes and gives."""

    __test__ = False

    name: str
    declaration: str
    params: tuple[Type, ...]
    returns: Type


@dataclass(frozen=True, kw_only=True)
class WellBound:
    """A workflow's text, the texts of those it uses by path, and its inputs: name, type, whether there is a default."""

    text: str
    modules: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[tuple[str, Type, bool], ...] = ()


LABELS = Choice(("red", "green", "blue"))
RECORD = Record((("ok", BOOL), ("note", TEXT), ("score", Optional(INT))))
VALUE_TYPES: tuple[Type, ...] = (TEXT, TEXT, INT, FLOAT, BOOL, ListOf(TEXT), ListOf(INT), LABELS, RECORD, JSON)
# A constant is never of type json, so expressions are not either.
EXPRESSION_TYPES = tuple(kind for kind in VALUE_TYPES if kind != JSON)
REPLY_TYPES: tuple[Type, ...] = (TEXT, TEXT, INT, BOOL, LABELS, RECORD, ListOf(TEXT), FLOAT, JSON, Optional(TEXT))
LITERAL_TEXTS = ("a", "", "two words", "x,y", "%s", "{ }", "---", "ไทย 🦉", "back\\slash")
# What a prompt may hold besides its slots.
PROSE = (
    "Judge: ",
    "\n",
    '{"a": {"b": 1}} ',
    "100 % ",
    "${HOME} ",
    "ไทย ",
    '"quoted" ',
    "\\n ",
    "{#",
    "",
    "# no comment",
)
MODULE = """workflow part(doc: text, hint: text? = null)
short = llm { user "Shorten {{ doc }} {{ hint }}" }
size = len(doc)
output short, size
"""


@st.composite
def wellbound(draw: Draw, *, tools: Sequence[TestTool] = (), uses: bool = True) -> WellBound:
    """A workflow that binds. Its steps call the given tools too, and a sub-workflow unless `uses` is false.

    No model of it names an engine of its own: all calls go to the engine of the run.
    """
    return _Author(draw, tools, uses).workflow()


def rows_for(subject: WellBound, *, max_size: int = 4) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Input rows that fit a workflow: null or nothing where an input may be missing, no value that does not fit."""
    columns = [_cells(name, kind, defaulted) for name, kind, defaulted in subject.inputs]
    row = st.tuples(*columns).map(lambda cells: {name: value for cell in cells for name, value in cell.items()})
    return st.lists(row, max_size=max_size)


def _cells(name: str, kind: Type, defaulted: bool) -> st.SearchStrategy[dict[str, Any]]:
    given = values(kind).map(lambda value: {name: value})
    return st.just({}) | given if defaulted or isinstance(kind, Optional) else given


@dataclass
class _Names:
    """What can be read and set at one place. `carriable` are the steps that a `repeat` here may carry round."""

    types: dict[str, Type]
    carriable: set[str] = field(default_factory=set)

    def inner(self) -> _Names:
        return _Names(dict(self.types))

    def define(self, name: str, kind: Type) -> None:
        self.types[name] = kind
        self.carriable.add(name)

    def of(self, accepts: Callable[[Type], bool]) -> list[str]:
        return [name for name, kind in self.types.items() if accepts(kind)]


class _Author:
    """Writes one workflow, line by line."""

    def __init__(self, draw: Draw, tools: Sequence[TestTool], uses: bool) -> None:
        self._draw = draw
        self._tools = {tool.name: tool for tool in tools}
        self._count = 0
        self._models: list[str] = []
        self._may_use = uses
        self._uses = False
        self._called: set[str] = set()

    # --- drawing ---

    def one(self, options: Sequence[T]) -> T:
        picked: T = self._draw(st.sampled_from(options))
        return picked

    def number(self, low: int, high: int) -> int:
        picked: int = self._draw(st.integers(low, high))
        return picked

    def chance(self, one_in: int) -> bool:
        return self.number(1, one_in) == one_in

    def fresh(self) -> str:
        self._count += 1
        words = ("step", "history", "text", "part", "model", "limit", "ชื่อ")
        return f"{self.one(words)}_{self._count}" if self.chance(4) else f"s{self._count}"

    # --- the file ---

    def workflow(self) -> WellBound:
        self._models = [f"m{number}" for number in range(self.number(0, 2))]
        self._uses = self._may_use and self.chance(4)
        inputs: list[tuple[str, Type, bool]] = [("a", TEXT, False)]
        params = ["a: text"]
        for number in range(self.number(0, 3)):
            kind = self.one(VALUE_TYPES)
            kind = optional(kind) if self.chance(3) else kind
            default = f" = {self.literal(kind)}" if self.chance(3) else ""
            params.append(f"i{number}: {kind}{default}")
            inputs.append((f"i{number}", kind, bool(default)))
        names = _Names({name: kind for name, kind, _ in inputs})
        lets = {f"c{number}": self.one((TEXT, INT, ListOf(TEXT), BOOL)) for number in range(self.number(0, 2))}
        head = [f"let {name} = {self.literal(kind)}" for name, kind in lets.items()]
        head += [self.model(name) for name in self._models]
        names.types |= lets
        body: list[str] = []
        for _ in range(self.number(1, 6)):
            body += self.top(names, lets)
        body.append(f"output {self.columns(names, lets)}")
        head += [self._tools[name].declaration for name in sorted(self._called)]
        if self._uses:
            head.append('use "part.helix" as sub')
        text = "\n".join([f"workflow random({', '.join(params)})", *head, *body]) + "\n"
        return WellBound(text=text, modules={"part.helix": MODULE} if self._uses else {}, inputs=tuple(inputs))

    def model(self, name: str) -> str:
        options = [f'name: "{name}"']
        if self.chance(3):
            options.append(
                self.one(("temperature: 0.7", "temperature: null", "seed: 7", "top_p: 0.5", 'stop: ["\\n"]'))
            )
        if self.chance(3):
            options.append(self.one(("max_tokens: 8", "extra: { min_p: 0.1 }", "timeout: 20s", "reask: 0")))
        return f"model {name} {{ {', '.join(options)} }}"

    def columns(self, names: _Names, lets: Mapping[str, Type]) -> str:
        readable = [name for name in names.types if name not in lets]
        chosen = self._draw(st.lists(st.sampled_from(readable), max_size=4, unique=True)) if readable else []
        columns = [*chosen]
        if not columns or self.chance(3):
            columns.append(f"{self.any_expr(names)} as last_column")
        return ", ".join(columns)

    # --- statements ---

    def top(self, names: _Names, lets: Mapping[str, Type]) -> list[str]:
        kind = self.number(1, 12)
        if kind == 1:
            return [f"keep when {self.condition(names)}"]
        if kind == 2:
            return [f"limit {self.number(0, 5)}"]
        if kind == 3:
            keys = [f"{self.expr(names, self.one((TEXT, INT, BOOL)), 1)}{self.one(('', ' desc', ' asc'))}"]
            return [f"sort by {', '.join(keys)}"]
        if kind == 4:
            name = self.fresh()
            line = f"spread {self.expr(names, ListOf(TEXT), 1)} as {name}"
            names.types[name] = TEXT
            return [line]
        keyed = names.of(lambda each: each in (TEXT, INT, BOOL) or isinstance(each, Choice))
        keyed = [name for name in keyed if name not in lets]
        if kind == 5 and keyed:
            return self.group(names, lets, keyed)
        return self.statement(names, 2)

    def group(self, names: _Names, lets: Mapping[str, Type], keyed: list[str]) -> list[str]:
        keys = self._draw(st.lists(st.sampled_from(keyed), min_size=1, max_size=2, unique=True))
        record = Record(tuple((name, kind) for name, kind in names.types.items() if name not in lets))
        inner = _Names({**lets, **{key: names.types[key] for key in keys}, "rows": ListOf(record)})
        lines: list[str] = []
        for _ in range(self.number(0, 2)):
            lines += self.statement(inner, 1)
        inner.types.pop("rows")
        names.types, names.carriable = inner.types, inner.carriable
        return [f"group by {', '.join(keys)} {{", *_indented(lines), "}"]

    def statement(self, names: _Names, depth: int) -> list[str]:
        kind = self.number(1, 8) if depth else self.number(1, 4)
        if kind == 8:
            return self.branch(names, depth)
        if kind == 7:
            return self.repeat(names, depth)
        if kind == 6:
            return self.loop(names, depth)
        name = self.fresh()
        value, given = self.value(names)
        if self.chance(4):
            lines = _with_last(value, f" when {self.condition(names)}")
            names.define(name, optional(given))
        else:
            lines = value
            names.define(name, given)
        return [f"{name} = {lines[0]}", *lines[1:]]

    def value(self, names: _Names, wanted: Type | None = None) -> tuple[list[str], Type]:
        """The lines of a step's value, and its type."""
        kind = self.number(1, 5)
        if kind == 1 and wanted is None and self._tools:
            tool = self.one(tuple(self._tools.values()))
            self._called.add(tool.name)
            return [f"{tool.name}({', '.join(self.expr(names, each, 1) for each in tool.params)})"], tool.returns
        if kind == 2 and wanted is None and self._uses:
            hint = f", hint: {self.expr(names, TEXT, 1)}" if self.chance(2) else ""
            return [f"sub(doc: {self.expr(names, TEXT, 1)}{hint})"], Record((("short", TEXT), ("size", INT)))
        if kind == 3 and wanted != JSON:
            plain = wanted or self.one(EXPRESSION_TYPES)
            return [self.expr(names, plain, 2)], plain
        return self.llm(names, wanted)

    def llm(self, names: _Names, wanted: Type | None) -> tuple[list[str], Type]:
        returns = wanted or self.one(REPLY_TYPES)
        options: list[str] = []
        sample = 1
        if wanted is None and self.chance(5):
            sample = self.number(2, 3)
            options += [f"sample: {sample}", self.one(("temperature: 0.9", "temperature: 0.5, cache: off"))]
        if self.chance(4):
            options.append(self.one(("max_tokens: 5", "attempts: 1", "timeout: 30s", "reask: 2", "coerce: on")))
        nullable = wanted is None and self.chance(8)
        if nullable:
            options.append(self.one(("on_error: null", 'on_error: "null"')))
        texts = names.of(lambda kind: kind == TEXT)
        shown = self.one(texts) if texts and self.chance(8) else None
        if shown is not None:
            options.append(f"on_overflow: truncate({shown}, keep: {self.one(('head', 'tail'))})")
        model = f" {self.one(self._models)}" if len(self._models) > 1 or (self._models and self.chance(2)) else ""
        given = f"({', '.join(options)})" if options else ""
        arrow = f" -> {returns}" if returns != TEXT or self.chance(5) else ""
        parts = self.prompt(names, shown)
        value = ListOf(returns) if sample > 1 else returns
        return [f"llm{model}{given}{arrow} {{", *_indented(parts), "}"], optional(value) if nullable else value

    def prompt(self, names: _Names, shown: str | None) -> list[str]:
        lines: list[str] = []
        if self.chance(3):
            lines.append(f"system {self.template(names)}")
        turns = names.of(lambda kind: kind in (JSON, ListOf(JSON)))
        if turns and self.chance(8):
            lines.append(f"history {self.one(turns)}")
        if self.chance(8):
            parts = [f"part {self.template(names)}" for _ in range(2)]
            lines += [f"{self.one(('', 'user '))}unordered {{ {' '.join(parts)} }}"]
        if self.chance(8):
            lines.append(f"assistant {self.template(names)}")
        if shown is not None:
            lines.append(f'user "{{{{ {shown} }}}}"')
        lines.append(f"user {self.template(names)}")
        return lines

    def template(self, names: _Names) -> str:
        pieces: list[str] = []
        for _ in range(self.number(1, 3)):
            pieces.append(quote(self.one(PROSE))[1:-1])
            if self.chance(6):
                lists = names.of(lambda kind: isinstance(kind, ListOf))
                if lists:
                    pieces.append(f"{{% for each in {self.one(lists)} %}}[{{{{ each }}}}]{{% endfor %}}")
                    continue
            pieces.append(f"{{{{ {self.any_expr(names)} }}}}")
        return '"' + "".join(pieces) + '"'

    def loop(self, names: _Names, depth: int) -> list[str]:
        name, variable = self.fresh(), self.fresh()
        item = self.one((TEXT, INT))
        over = self.expr(names, ListOf(item), 1)
        inner = names.inner()
        inner.types[variable] = item
        lines = self.block(inner, depth - 1)
        kind = self.one(EXPRESSION_TYPES)
        lines.append(f"yield {self.expr(inner, kind, 1)}")
        names.define(name, ListOf(kind))
        return [f"{name} = for {variable} in {over} {{", *_indented(lines), "}"]

    def branch(self, names: _Names, depth: int) -> list[str]:
        """An `if`: its arms share names, and have some of their own."""
        shared = [self.fresh() for _ in range(self.number(0, 2))]
        conditions = [self.condition(names) for _ in range(self.number(1, 2))]
        arms: list[tuple[list[str], dict[str, Type]]] = []
        for _ in range(len(conditions) + self.number(0, 1)):
            inner = names.inner()
            lines = self.block(inner, depth - 1) if self.chance(2) else []
            for name in shared:
                if not self.chance(4):
                    value, kind = self.value(inner)
                    lines += [f"{name} = {value[0]}", *value[1:]]
                    inner.types[name] = kind
            arms.append((lines, {name: kind for name, kind in inner.types.items() if name not in names.types}))
        given = dict.fromkeys(name for _, types in arms for name in types)
        if len(arms) == len(conditions):
            arms.append(([], {}))
        for name in given:
            kind = arms[-1][1].get(name, NULL)
            for _, types in reversed(arms[:-1]):
                kind = join(types.get(name, NULL), kind)
            names.define(name, kind)
        lines = []
        for place, (arm, _) in enumerate(arms):
            if place < len(conditions):
                lines.append(f"{'} else ' if place else ''}if {conditions[place]} {{")
            elif arm:
                lines.append("} else {")
            lines += _indented(arm)
        return [*lines, "}"]

    def repeat(self, names: _Names, depth: int) -> list[str]:
        inner = names.inner()
        carried = [name for name in sorted(names.carriable) if self.chance(2)][:2]
        lines = self.block(inner, depth - 1)
        local = {name: kind for name, kind in inner.types.items() if name not in names.types}
        for name in carried:
            if name in inner.carriable:
                continue
            value, kind = self.value(inner, names.types[name])
            if self.chance(3) and names.types[name] != JSON:
                other = self.expr(inner, names.types[name], 1)
                lines += [f"if {self.condition(inner)} {{", *_indented([f"{name} = {other}"]), "}"]
            else:
                lines += [f"{name} = {value[0]}", *value[1:]]
        until = f" until {self.condition(inner)}" if self.chance(2) else ""
        for name, kind in local.items():
            names.define(name, kind)
        return [f"repeat up to {self.number(1, 3)}{until} {{", *_indented(lines), "}"]

    def block(self, names: _Names, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.number(1, 2)):
            lines += self.statement(names, depth)
        return lines

    # --- expressions ---

    def condition(self, names: _Names) -> str:
        return self.expr(names, BOOL, 2)

    def any_expr(self, names: _Names) -> str:
        """An expression of any type, as it may stand in a slot: no record is written out."""
        if self.chance(2) and names.types:
            return self.one(list(names.types))
        return self.expr(names, self.one((TEXT, INT, BOOL, FLOAT, ListOf(TEXT))), 2)

    def expr(self, names: _Names, kind: Type, depth: int) -> str:
        """An expression of a type, in parentheses where it is not an atom."""
        ready = names.of(lambda each: each == kind)
        nullable = names.of(lambda each: each == Optional(kind))
        if ready and self.chance(2):
            return self.one(ready)
        if nullable and self.chance(3):
            return f"default({self.one(nullable)}, {self.literal(kind)})"
        if depth == 0 or self.chance(3):
            return self.literal(kind)

        def inner(each: Type) -> str:
            return self.expr(names, each, depth - 1)

        records = names.of(lambda each: each == RECORD)
        if isinstance(kind, ListOf):
            options = [
                lambda: f"{self.one(('unique', 'reverse'))}({inner(kind)})",
                lambda: f"take({inner(kind)}, {self.number(0, 2)})",
                lambda: f"[{inner(kind.item)}, {inner(kind.item)}]",
                lambda: f"({inner(kind)} + {inner(kind)})",
            ]
            if kind.item == TEXT:
                options += [lambda: f"split({inner(TEXT)}, {quote(self.one((',', ' ', 'o')))})"] * 2
            if kind.item == INT:
                options.append(lambda: f"range({self.number(0, 3)})")
        elif kind == TEXT:
            options = [
                lambda: f"{self.one(('upper', 'lower', 'trim'))}({inner(TEXT)})",
                lambda: f"({inner(TEXT)} + {inner(TEXT)})",
                lambda: f"text({inner(self.one((INT, FLOAT, BOOL, LABELS, ListOf(INT))))})",
                lambda: f"join({inner(ListOf(TEXT))}, {quote(self.one((', ', '-')))})",
                lambda: f"replace({inner(TEXT)}, {quote('a')}, {inner(TEXT)})",
                # A call keeps it from being computed, and refused, before the run.
                lambda: f"reverse({inner(ListOf(TEXT))})[{self.number(-1, 1)}]",
                lambda: f"default({inner(ListOf(TEXT))}[0], {quote('none')})",
            ]
            if records:
                options.append(lambda: f"{self.one(records)}.note")
        elif kind == INT:
            options = [
                lambda: f"len({inner(self.one((TEXT, ListOf(TEXT))))})",
                lambda: f"({inner(INT)} {self.one('+-*')} {inner(INT)})",
                lambda: f"sum({inner(ListOf(INT))})",
                lambda: f"-{inner(INT)}",
                lambda: f"round({inner(FLOAT)})" if self.chance(2) else f"int({inner(FLOAT)})",
            ]
        elif kind == FLOAT:
            options = [
                lambda: f"({inner(INT)} / {self.one((1, 2, 4))})",
                lambda: f"({inner(FLOAT)} + {inner(INT)})",
                lambda: f"float({inner(INT)})",
            ]
        elif kind == BOOL:
            options = [
                lambda: f"({inner(INT)} {self.one(('<', '<=', '>', '>=', '==', '!='))} {inner(INT)})",
                lambda: f"({inner(TEXT)} {self.one(('==', '!=', 'in', 'not in', '<'))} {inner(TEXT)})",
                lambda: f"({inner(BOOL)} {self.one(('and', 'or'))} {inner(BOOL)})",
                lambda: f"(not {inner(BOOL)})",
                lambda: f"({inner(TEXT)} {self.one(('in', 'not in'))} {inner(ListOf(TEXT))})",
                lambda: f"({inner(LABELS)} == {quote(self.one(LABELS.labels))})",
            ]
            if records:
                options.append(lambda: f"{self.one(records)}.ok")
        else:
            return self.literal(kind)
        return self.one(options)()

    def literal(self, kind: Type) -> str:
        """A constant of a type."""
        match kind:
            case Optional(inner):
                return "null" if self.chance(2) else self.literal(inner)
            case ListOf(item):
                return f"[{', '.join(self.literal(item) for _ in range(self.number(1, 3)))}]"
            case Choice(labels):
                return quote(self.one(labels))
            case Record(fields):
                return "{ " + ", ".join(f"{name}: {self.literal(each)}" for name, each in fields) + " }"
        texts: dict[Type, Callable[[], str]] = {
            TEXT: lambda: quote(self.one(LITERAL_TEXTS)),
            INT: lambda: str(self.number(0, 9)),
            FLOAT: lambda: self.one(("0.5", "2.0", "1e3")),
            BOOL: lambda: self.one(("true", "false")),
        }
        made = texts.get(kind)
        return made() if made else json.dumps(self.one((None, 1, "x", True)))


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _with_last(lines: list[str], tail: str) -> list[str]:
    return [*lines[:-1], lines[-1] + tail]
