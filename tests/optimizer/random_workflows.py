"""Random workflows that give rules something to do: equal steps, constants, loops with invariants, safe filters.

They are those of `wellbound` with more of what rules look for; all else, failing expressions above all, stays in. A
workflow and its rows come from one number, so that each is unlike the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from compared import DECLARATIONS, STATEMENTS
from wellbound import LABELS, RECORD, TestTool, WellBound, _Author, _indented, _Names

from helix.types import BOOL, FLOAT, INT, JSON, TEXT, Choice, ListOf, Optional, Record, Table, Type, optional, quote

T = TypeVar("T")
TOOLS = tuple(
    TestTool(name=name, declaration=declaration, params=params, returns=returns)
    for name, (declaration, params, returns) in DECLARATIONS.items()
)
WEIGH = 'function weigh(text: text) -> int from python "lib:weigh"'
INPUTS: tuple[Type, ...] = (TEXT, TEXT, INT, INT, FLOAT, BOOL, ListOf(TEXT), ListOf(INT), LABELS, RECORD, JSON)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A workflow with rows that fit it, but for some that fail before their first step."""

    workflow: WellBound
    rows: list[dict[str, Any]]
    failing: float


def case(seed: int) -> Case:
    """The workflow, the rows and the share of failing prompts that a number stands for."""
    dice = Random(seed)
    author = Author(dice)
    subject = author.workflow()
    return Case(workflow=subject, rows=_rows(dice, subject), failing=dice.choice((0.0, 0.1, 0.1, 0.4)))


def _rows(dice: Random, subject: WellBound) -> list[dict[str, Any]]:
    rows = [_row(dice, subject) for _ in range(dice.choice((0, 1, 2, 3, 3, 4, 5, 6)))]
    if rows and dice.random() < 0.4:
        rows.insert(dice.randrange(len(rows) + 1), dict(dice.choice(rows)))
    if rows and dice.random() < 0.3:
        rows.insert(dice.randrange(len(rows) + 1), dice.choice(rows) | {"a": dice.choice(("", None))})
    return rows


def _row(dice: Random, subject: WellBound) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, kind, defaulted in subject.inputs:
        if (defaulted or isinstance(kind, Optional)) and dice.random() < 0.3:
            continue
        row[name] = value_of(dice, kind)
    return row


def value_of(dice: Random, kind: Type) -> Any:
    """A value of a type."""
    match kind:
        case Optional(inner):
            return None if dice.random() < 0.4 else value_of(dice, inner)
        case ListOf(item):
            return [value_of(dice, item) for _ in range(dice.randrange(4))]
        case Choice(labels):
            return dice.choice(labels)
        case Record(fields):
            return {name: value_of(dice, each) for name, each in fields}
    if kind == TEXT:
        return dice.choice(("red", "bug report", "a, b, c", "42", "{{ x }}", "ไทย", "long " * 5))
    if kind == INT:
        return dice.randint(-3, 40)
    if kind == FLOAT:
        return dice.choice((0.0, -1.5, 0.25, 1e9, 3.0))
    if kind == BOOL:
        return dice.random() < 0.5
    return dice.choice((None, 3, "x", [1, "a"], ["p", "q"], {"a": 1}, {"f": "v", "g": [1]}))


class Author(_Author):
    """Writes one workflow with a bent for what rules change."""

    def __init__(self, dice: Random) -> None:
        super().__init__(lambda strategy: None, TOOLS, True)
        self._dice = dice
        self._written: list[tuple[list[str], Type, dict[str, Type]]] = []
        self._weighs = False

    def one(self, options: Sequence[T]) -> T:
        return self._dice.choice(options)

    def number(self, low: int, high: int) -> int:
        return self._dice.randint(low, high)

    def some(self, options: Sequence[T], most: int) -> list[T]:
        return self._dice.sample(options, min(len(options), self.number(1, most)))

    def workflow(self) -> WellBound:
        self._models = [f"m{number}" for number in range(self.number(0, 2))]
        self._uses = self.chance(5)
        inputs: list[tuple[str, Type, bool]] = [("a", TEXT, False)]
        params = ["a: text"]
        for number in range(self.number(0, 4)):
            kind = self.one(INPUTS)
            kind = optional(kind) if self.chance(4) else kind
            default = f" = {self.literal(kind)}" if self.chance(6) else ""
            params.append(f"i{number}: {kind}{default}")
            inputs.append((f"i{number}", kind, bool(default)))
        names = _Names({name: kind for name, kind, _ in inputs})
        lets = {f"c{number}": self.one((TEXT, TEXT, INT, ListOf(TEXT), BOOL)) for number in range(self.number(0, 3))}
        head = [f"let {name} = {self.literal(kind)}" for name, kind in lets.items()]
        head += [self.model(name) for name in self._models]
        names.types |= lets
        body: list[str] = []
        for _ in range(self.number(2, 8)):
            body += self.top(names, lets)
        body.append(f"output {self.columns(names, lets)}")
        head += [self._tools[name].declaration for name in sorted(self._called)]
        if self._uses:
            head.append('use "part.helix" as sub')
        if self._weighs:
            head.append(WEIGH)
        text = "\n".join([f"workflow random({', '.join(params)})", *head, *body]) + "\n"
        from wellbound import MODULE

        return WellBound(text=text, modules={"part.helix": MODULE} if self._uses else {}, inputs=tuple(inputs))

    def columns(self, names: _Names, lets: Any) -> str:
        readable = [name for name in names.types if name not in lets]
        columns = [name for name in readable if self.chance(2) or (name.startswith("s") and not self.chance(3))]
        if not columns or self.chance(3):
            columns.append(f"{self.any_expr(names)} as last_column")
        return ", ".join(columns)

    def group(self, names: _Names, lets: Any, keyed: list[str]) -> list[str]:
        keys = self.some(keyed, 2)
        record = Record(tuple((name, kind) for name, kind in names.types.items() if name not in lets))
        inner = _Names({**lets, **{key: names.types[key] for key in keys}, "rows": ListOf(record)})
        lines: list[str] = []
        for _ in range(self.number(0, 2)):
            lines += self.statement(inner, 1)
        if self.chance(2):
            lines += self.over_rows(inner, record)
        inner.types.pop("rows")
        names.types, names.carriable = inner.types, inner.carriable
        return [f"group by {', '.join(keys)} {{", *_indented(lines), "}"]

    def over_rows(self, names: _Names, record: Record) -> list[str]:
        """A step that reads some columns of a group's rows."""
        name, field = self.fresh(), self.one([each for each, _ in record.fields])
        prompts = (
            f"\"{{{{ rows | map(attribute='{field}') | join(',') }}}}\"",
            f'"{{% for r in rows %}}{{{{ r.{field} }}}};{{% endfor %}}"',
            f'"{{{{ rows[0].{field} }}}} of {{{{ rows | length }}}}"',
            '"{{ rows }}"',
        )
        names.define(name, TEXT)
        return [f"{name} = llm{self.model_name()} {{ user {self.one(prompts)} }}"]

    def model_name(self) -> str:
        return f" {self.one(self._models)}" if self._models else ""

    def fresh(self) -> str:
        self._count += 1
        return f"s{self._count}"

    # --- steps ---

    def llm(self, names: _Names, wanted: Type | None) -> tuple[list[str], Type]:
        return self.agent(names, wanted) if self.chance(6) else super().llm(names, wanted)

    def agent(self, names: _Names, wanted: Type | None) -> tuple[list[str], Type]:
        """An agent with a few tools, of which some act or fail, and limits that it comes to."""
        returns = wanted or self.one((TEXT, TEXT, INT, LABELS, RECORD))
        tools = self.some(list(DECLARATIONS), 3)
        self._called.update(tools)
        options = [self.one(("temperature: 0.9", "on_error: null", "cache: off", "reask: 0"))] if self.chance(3) else []
        parts = [f"tools [{', '.join(tools)}]", f"max_turns {self.number(1, 4)}"]
        if self.chance(4):
            parts.append(self.one(("at_limit fail", "max_total_tokens 300")))
        traced = wanted is None and self.chance(4)
        parts += ["trace on"] if traced else []
        parts += self.prompt(names, None)
        given = f"({', '.join(options)})" if options else ""
        kind = Record((("answer", returns), ("trace", ListOf(JSON)))) if traced else returns
        if "on_error: null" in options:
            kind = optional(kind)
        model = f" {self.one(self._models)}" if len(self._models) > 1 or (self._models and self.chance(2)) else ""
        arrow = f" -> {returns}" if returns != TEXT or self.chance(5) else ""
        return [f"agent{model}{given}{arrow} {{", *_indented(parts), "}"], kind

    def value(self, names: _Names, wanted: Type | None = None) -> tuple[list[str], Type]:
        if self.chance(2):
            again = self.again(names, wanted)
            if again is not None:
                return again
        if wanted is None and self.chance(20):
            self._called.add("ask")
            made: tuple[list[str], Type] = [f"ask({quote(self.one(STATEMENTS))})"], Table()
        else:
            made = super().value(names, wanted)
        if made[0][0].startswith(("agent", "llm", "sub", *DECLARATIONS)) and not made[0][0].startswith("save"):
            self._written.append((*made, dict(names.types)))
        return made

    def again(self, names: _Names, wanted: Type | None) -> tuple[list[str], Type] | None:
        """A value that was written before, where all that it read is still there."""
        fitting = [
            (lines, kind)
            for lines, kind, needed in self._written
            if (wanted is None or kind == wanted) and needed.items() <= names.types.items()
        ]
        return self.one(fitting) if fitting else None

    def statement(self, names: _Names, depth: int) -> list[str]:
        if depth and self.chance(6):
            return self.same_in_both_arms(names)
        return super().statement(names, depth)

    def same_in_both_arms(self, names: _Names) -> list[str]:
        condition = self.condition(names)
        name, other = self.fresh(), self.fresh()
        value, kind = self.value(names)
        inner = names.inner()
        inner.types[name] = kind
        more, more_kind = self.value(inner)
        step = [f"{name} = {value[0]}", *value[1:]]
        after = [f"{other} = {more[0]}", *more[1:]]
        otherwise = [f"{other} = {more[0]}", *more[1:]] if self.chance(2) else [f"{other} = null"]
        names.define(name, kind)
        names.define(other, more_kind if otherwise == after else optional(more_kind))
        return [f"if {condition} {{", *_indented(step + after), "} else {", *_indented(step + otherwise), "}"]

    def loop(self, names: _Names, depth: int) -> list[str]:
        if self.chance(3):
            return super().loop(names, depth)
        name, variable = self.fresh(), self.fresh()
        item = self.one((TEXT, INT))
        count = self.number(1, 3)
        one: Callable[[], str] = lambda: self.literal(item)  # noqa: E731
        if self.chance(2):
            one = lambda: self.expr(names, item, 1)  # noqa: E731
        over = f"[{', '.join(one() for _ in range(count))}]"
        inner = names.inner()
        lines: list[str] = []
        if self.chance(2):
            # A step that does not read the item.
            fixed, (value, kind) = self.fresh(), self.value(inner)
            lines += [f"{fixed} = {value[0]}", *value[1:]]
            inner.types[fixed] = kind
        inner.types[variable] = item
        lines += self.block(inner, depth - 1)
        result = self.one((TEXT, TEXT, INT, BOOL))
        local = [each for each in inner.types if each not in names.types]
        if self.chance(2):
            chosen = self.one(local)
            lines.append(f"yield {chosen}")
            names.define(name, ListOf(inner.types[chosen]))
        else:
            lines.append(f"yield {self.expr(inner, result, 1)}")
            names.define(name, ListOf(result))
        return [f"{name} = for {variable} in {over} {{", *_indented(lines), "}"]

    def top(self, names: _Names, lets: Any) -> list[str]:
        kind = self.number(1, 14)
        if kind == 1:
            return [f"keep when {self.safe_condition(names)}"]
        if kind == 2:
            return [f"limit {self.number(1, 5)}"]
        if kind == 3:
            keys = names.of(lambda each: each in (TEXT, INT)) or ["1"]
            return [f"sort by {self.one(keys)}{self.one(('', ' desc'))}"]
        return super().top(names, lets)

    # --- expressions ---

    def condition(self, names: _Names) -> str:
        return self.safe_condition(names) if self.chance(2) else super().condition(names)

    def safe_condition(self, names: _Names) -> str:
        """A condition that cannot fail by itself."""
        texts = names.of(lambda kind: kind == TEXT) or ['"x"']
        numbers = names.of(lambda kind: kind in (INT, FLOAT)) or ["1"]
        options: Sequence[Callable[[], str]] = (
            lambda: f"len({self.one(texts)}) {self.one('<>')} {self.number(0, 9)}",
            lambda: f"{self.one(numbers)} >= {self.number(-1, 9)}",
            lambda: f"{self.one(texts)} == {quote(self.one(('red', 'bug report', 'x')))}",
            lambda: f"({self.safe_condition(names)} {self.one(('and', 'or'))} {self.safe_condition(names)})",
            lambda: self.one(names.of(lambda kind: kind == BOOL) or ["true"]),
            lambda: self.one(("true", "false", "len([1, 2]) == 2")),
        )
        return self.one(options)()

    def expr(self, names: _Names, kind: Type, depth: int) -> str:
        if kind == INT and self.chance(20):
            self._weighs = True
            return f"weigh({super().expr(names, TEXT, 0)})"
        if depth and self.chance(4):
            taken = self.taken_out(names, kind)
            if taken is not None:
                return taken
        if kind == TEXT and depth and self.chance(4):
            parts = [super(Author, self).expr(names, TEXT, depth - 1) for _ in range(2)]
            return self.one((f"({parts[0]} + {parts[1]})", f'join([{", ".join(parts)}], "; ")', f"text({parts[0]})"))
        return super().expr(names, kind, depth)

    def taken_out(self, names: _Names, kind: Type) -> str | None:
        """A part of something larger: a field, or an item that may not be there."""
        options = [
            f"{name}.{field}"
            for name, record in names.types.items()
            if isinstance(record, Record)
            for field, each in record.fields
            if each == kind
        ]
        lists = names.of(lambda each: each == ListOf(kind))
        options += [f"{name}[{self.number(-1, 1)}]" for name in lists]
        if kind in (TEXT, INT) and names.of(lambda each: each == kind):
            known = names.of(lambda each: each == kind)
            options.append(f"[{self.one(known)}, {self.one(known)}][{self.number(0, 1)}]")
        if kind == TEXT:
            options += [f"text({name}.f)" for name in names.of(lambda each: each == JSON)]
        return self.one(options) if options else None
