"""What decides a value: which columns of the input, so that rows that agree in them agree in the value.

Rules that lay prompts out and that group rows ask how often a piece of a prompt changes from row to row. What changes
with chance or with the rounds of a loop changes with each call: nothing decides it. Nor does anything decide the item
of a list, for a rule that asks for a row's calls one by one; where rows are asked for, those that agree in the list
agree in all of its items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from helix.expr import Arg, walk
from helix.logical import (
    Apply,
    Body,
    Choose,
    Const,
    Fetch,
    Generate,
    GroupReduce,
    Invoke,
    Map,
    Node,
    Project,
    PromptPart,
    Render,
    Repeat,
    Scan,
    Value,
    bodies,
    body_nodes,
    topological,
)
from helix.optimizer.rule import TableStats
from helix.optimizer.tokens import estimated_tokens
from helix.templates.template import Block, Text
from helix.traits import traits

# The columns that decide a value; None where no column does.
Deciders = frozenset[str] | None
NOTHING: frozenset[str] = frozenset()
# What a value from a step or a list is taken to have, where nobody has seen one.
UNKNOWN_TOKENS = 64.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a prompt: what decides it (nothing for literal text), and its tokens, by an estimate."""

    deciders: Deciders
    tokens: float
    literal: bool = False


@dataclass(slots=True, eq=False)
class Scope:
    """The deciders of the values of one scope: a plan's own, or a sub-plan's, whose parameters are `given`.

    `items`: what decides a list decides its items too. `columns` are the parameters that are a column, or an item of
    one, by name.
    """

    given: Mapping[str, Deciders] = field(default_factory=dict)
    items: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    known: dict[str, Deciders] = field(default_factory=dict)

    def add(self, nodes: Iterable[Node]) -> Scope:
        """Finds the deciders of nodes, which come inputs before readers."""
        for node in nodes:
            if node.id not in self.known:
                self.known[node.id] = self._of(node)
        return self

    def inside(self, holder: Node, body: Body) -> Scope:
        """The scope of a sub-plan that an operator of this one holds."""
        names = [name for name, _ in body.parameters.columns]
        captures: tuple[Value, ...] = holder.captures  # type: ignore[attr-defined]
        first = len(names) - len(captures)
        passed = list(zip(names[first:], captures, strict=True))
        # An item, or what a loop carries round, is another each time.
        given = dict.fromkeys(names[:first]) | {name: self.known[value.id] for name, value in passed}
        if isinstance(holder, Map) and self.items:
            given[names[0]] = self.known[holder.over.id]
            passed.append((names[0], holder.over))
        columns = {name: column for name, value in passed if (column := self.column(value)) is not None}
        return Scope(given, self.items, columns).add(body_nodes(body))

    def column(self, value: Value) -> str | None:
        """The column that a value is, or is an item of."""
        if not isinstance(value, Project):
            return None
        return value.field if isinstance(value.source, Scan) else self.columns.get(value.field)

    def _of(self, node: Node) -> Deciders:
        match node:
            case Const() | Fetch():
                return NOTHING
            case Project(source=Scan(), field=name):
                return frozenset((name,))
            case Project(source=Choose() | Repeat() as source, field=name):
                return self._result(source, name)
            case Project(field=name):
                # A parameter; the item of a spread list and the key of a group are none, and change with each row.
                return self.given.get(name) if not isinstance(node.source, GroupReduce) else None
            case Apply(args=args) | Render(args=args):
                return self.of_all(args)
            case Generate() | Invoke() | Map():
                read = [each for each in node.inputs if isinstance(each, Value)]
                return self.of_all(read) if traits(node).deterministic else None
        return NOTHING

    def of_all(self, values: Iterable[Node]) -> Deciders:
        """What decides several values together."""
        found: set[str] = set()
        for value in values:
            deciders = self.known[value.id]
            if deciders is None:
                return None
            found |= deciders
        return frozenset(found)

    def _result(self, source: Choose | Repeat, name: str) -> Deciders:
        """What decides an output of a branch or a loop: its inputs, if nothing inside is left to chance."""
        if not traits(source).deterministic:
            return None
        return self.of_all(each for each in source.inputs if isinstance(each, Value))


def llm_steps(root: Node) -> Iterator[tuple[Scope, Generate]]:
    """All llm steps below a node, each with the scope that it stands in; those of sub-plans too, for all items."""
    yield from _steps(Scope(items=True).add(topological(root)), topological(root))


def _steps(scope: Scope, nodes: Iterable[Node]) -> Iterator[tuple[Scope, Generate]]:
    for node in nodes:
        if isinstance(node, Generate):
            yield scope, node
        for _, body in bodies(node):
            yield from _steps(scope.inside(node, body), body_nodes(body))


# --- prompts ------------------------------------------------------------------------------------------------------


def prompt_pieces(scope: Scope, prompt: Iterable[PromptPart], stats: TableStats | None) -> Iterator[Piece]:
    """The pieces of a prompt in their order."""
    for part in prompt:
        for content in part.content:
            yield from text_pieces(scope, content, stats)


def text_pieces(scope: Scope, content: Value, stats: TableStats | None) -> Iterator[Piece]:
    """The pieces of a text: literal stretches, and the values that are put in."""
    if isinstance(content, Const):
        yield Piece(NOTHING, estimated_tokens(content.json), literal=True)
    elif isinstance(content, Render):
        for segment in content.template.segments:
            if isinstance(segment, Text):
                yield Piece(NOTHING, estimated_tokens(segment.text), literal=True)
                continue
            values = segment.inputs if isinstance(segment, Block) else (segment.value,)
            places = {part.index: None for value in values for part in walk(value) if isinstance(part, Arg)}
            args = [content.args[place] for place in places]
            if not isinstance(segment, Block) and isinstance(segment.value, Arg) and isinstance(args[0], Render):
                yield from text_pieces(scope, args[0], stats)
            else:
                yield Piece(scope.of_all(args), sum(value_tokens(scope, arg, stats) for arg in args))
    else:
        yield Piece(scope.known[content.id], value_tokens(scope, content, stats))


def value_tokens(scope: Scope, value: Value, stats: TableStats | None) -> float:
    """About how many tokens a value takes; the item of a list in a column as many as all of them together."""
    name = scope.column(value)
    if name is not None and stats is not None:
        column = stats.columns.get(name)
        return UNKNOWN_TOKENS if column is None else column.tokens
    return estimated_tokens(value.json) if isinstance(value, Const) else UNKNOWN_TOKENS


# --- tables -------------------------------------------------------------------------------------------------------


def distinct(columns: Iterable[str], stats: TableStats) -> int:
    """How many different rows there are in these columns, at most: a column that another one decides adds none."""
    left = sorted(set(columns))
    decided = set(stats.determines)
    for column in tuple(left):
        if any((other, column) in decided for other in left if other != column):
            left.remove(column)
    count = 1
    for column in left:
        known = stats.columns.get(column)
        count = min(stats.rows, count * max(1, known.distinct if known is not None else stats.rows))
    return count


def closure(columns: Iterable[str], stats: TableStats) -> frozenset[str]:
    """The columns with all those that they decide, and those that are the same in all rows."""
    found = set(columns) | {name for name, column in stats.columns.items() if column.distinct <= 1}
    stack = list(found)
    while stack:
        column = stack.pop()
        for decider, decided in stats.determines:
            if decider == column and decided not in found:
                found.add(decided)
                stack.append(decided)
    return frozenset(found)
