"""What is known while a workflow is bound: declarations, names and their values, and the mistakes found so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from helix.canonical import constant_text
from helix.errors import BindError, SourceError, name_help
from helix.expr import Name
from helix.logical import Const, Relation, Tool, Value
from helix.span import Span
from helix.syntax import For, FunctionDecl, GroupBy, If, Option, Repeat, Spread, Statement, Step, Workflow
from helix.types import JSON, type_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Warning:
    """Something that is allowed but probably not meant."""

    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Callable:
    """A Python function that a workflow declares: `module:name`, looked up in the folder of the file that says so.

    `namespace` is the path of the sub-workflow that declares it, empty for the workflow itself, `name` its name there.
    """

    target: str
    folder: Path | None
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTool:
    """A tool as it is declared; `says_effects` tells whether the declaration names its effects."""

    tool: Tool
    says_effects: bool


@dataclass(slots=True, kw_only=True)
class Context:
    """One workflow file while it is bound: its declarations, and where mistakes are collected.

    `namespace` is empty for the workflow itself and the path of a sub-workflow: tools and functions of one name in two
    files are two. `callables` and `declared` tools are those of all files, by their qualified name.

    `broken` are the sub-workflows that could not be loaded: that is told once, not at each use. `active` are the files
    that are being used around this one.
    """

    folder: Path | None
    root: Path | None
    modules: Mapping[str, Workflow]
    errors: list[SourceError]
    warnings: list[Warning]
    overrides: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Const] = field(default_factory=dict)
    models: dict[str, tuple[Option, ...]] = field(default_factory=dict)
    tools: dict[str, Tool] = field(default_factory=dict)
    functions: dict[str, FunctionDecl] = field(default_factory=dict)
    uses: dict[str, tuple[Workflow, Context]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    active: tuple[str, ...] = ()
    used: set[str] = field(default_factory=set)
    namespace: str = ""
    callables: dict[str, Callable] = field(default_factory=dict)
    declared: dict[str, DeclaredTool] = field(default_factory=dict)
    steps: dict[str, None] = field(default_factory=dict)

    def qualified(self, name: str) -> str:
        """The name of a tool or function among those of all files."""
        return f"{self.namespace}#{name}" if self.namespace else name

    def inside(self, folder: Path | None) -> PurePosixPath | None:
        """A folder as seen from that of the outermost workflow; None where it is not below it."""
        if folder is None or self.root is None:
            return None
        resolved, root = folder.resolve(), self.root.resolve()
        return PurePosixPath(resolved.relative_to(root).as_posix()) if resolved.is_relative_to(root) else None

    def declare_callable(self, name: str, target: str) -> None:
        """Notes a Python function, to be loaded before a run."""
        made = Callable(target=target, folder=self.folder, namespace=self.namespace, name=name)
        self.callables[self.qualified(name)] = made

    def error(self, error: SourceError) -> None:
        """Notes a mistake; binding goes on."""
        if not any(str(known) == str(error) and known.span == error.span for known in self.errors):
            self.errors.append(error)

    def warn(self, message: str, span: Span | None) -> None:
        """Notes something that is allowed but probably not meant, once: the body of a loop may be bound twice."""
        if not any(known.message == message and known.span == span for known in self.warnings):
            self.warnings.append(Warning(message=message, span=span))


@dataclass(slots=True, kw_only=True)
class Scope:
    """The names at one place of a workflow. `taken` says where each name was set, also those of outer scopes.

    `carried` are the names of an enclosing `repeat` that this round may still set, each once. `later` holds the steps
    that come further down, with the names each uses; `rounds` those of them that a `repeat` sets without a value
    before its first round. `gone` explains names that were here but may no longer be read. `steps` are the names that
    steps of this very place have set. `calls` are the values made here that call something: they are run even if nobody
    reads them.
    `outside` are the names around a sub-plan, for messages: those that it reads are among its own.
    """

    rows: Relation
    names: dict[str, Value]
    taken: dict[str, Span | None]
    prefix: str = ""
    carried: frozenset[str] = frozenset()
    later: dict[str, tuple[Span | None, frozenset[str]]] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    rounds: frozenset[str] = frozenset()
    current: str = ""
    steps: set[str] = field(default_factory=set)
    calls: list[Value] = field(default_factory=list)
    outside: tuple[str, ...] = ()

    def define(self, context: Context, name: str, value: Value, span: Span | None) -> None:
        """Gives a name its value; a name that is taken is a mistake, unless it is carried round."""
        self.claim(context, name, span)
        self.put(name, value, span)

    def claim(self, context: Context, name: str, span: Span | None) -> None:
        """Notes the name of a step that is to be set, and a mistake where it is taken."""
        context.steps.setdefault(self.prefix + name)
        if name in self.taken and name not in self.carried:
            place = self.taken[name]
            where = f" on line {place.line}" if place is not None else ""
            context.error(BindError(f"`{name}` is already set{where}", span, "give this step another name"))

    def put(self, name: str, value: Value, span: Span | None) -> None:
        """Gives a name that was claimed its value."""
        if not value.label and not isinstance(value, Const):
            value = replace(value, label=self.prefix + name)
        self.names[name] = value
        self.taken[name] = span
        self.carried -= {name}
        self.gone.pop(name, None)
        self.later.pop(name, None)

    def is_step(self, name: str) -> bool:
        """Whether a `repeat` here may carry a name round: a step, not an input, a constant or a name from outside."""
        return name in self.steps or name in self.carried

    def lookup(self, context: Context, name: str, span: Span | None) -> Value:
        """The value of a name. An unknown one is a mistake, and null of any type from then on."""
        value = self.names.get(name)
        if value is not None:
            context.used.add(name)
            return value
        context.error(self._unknown(context, name, span))
        return null()

    def _unknown(self, context: Context, name: str, span: Span | None) -> BindError:
        if name in self.later:
            place, _ = self.later[name]
            if name in self.rounds:
                help = f"set `{name}` before the `repeat`, or further up in it"
                return BindError(f"`{name}` has no value in the first round", span, help)
            path = self._path(name, self.current) if self.current else None
            if path is not None:
                needs = ", which needs ".join(f"`{each}`" for each in path) if path[0] != self.current else "itself"
                return BindError(f"`{self.current}` needs {needs}: a cycle", span, "a loop is written `repeat up to N`")
            line = f" on line {place.line}" if place is not None else ""
            return BindError(
                f"`{name}` is used before it is set{line}", span, f"move the line that sets `{name}` above this one"
            )
        if name in self.gone:
            return BindError(f"`{name}` cannot be read here", span, self.gone[name])
        for kind, known in (("model", context.models), ("tool", context.tools), ("function", context.functions)):
            if name in known:
                return BindError(f"`{name}` is a {kind}, not a value", span)
        return BindError(f"unknown name `{name}`", span, name_help(name, (*self.names, *self.outside)))

    def _path(self, name: str, target: str) -> tuple[str, ...] | None:
        """How a step further down depends on the target: the names on the way, both ends included; None: not at all."""
        paths: list[tuple[str, ...]] = [(name,)]
        seen = {name}
        for path in paths:
            if path[-1] == target:
                return path
            following = self.later[path[-1]][1] if path[-1] in self.later else frozenset()
            fresh = sorted(following - seen)
            seen.update(fresh)
            paths.extend((*path, each) for each in fresh)
        return None


def null() -> Const:
    """The value of what could not be bound: it fits everywhere, so that one mistake is told once."""
    return Const(type=JSON, json="null")


def constant(value: Any, span: Span | None = None) -> Const:
    """A JSON value as an operator."""
    return Const(type=type_of(value), json=constant_text(value), span=span)


def used_names(part: Any) -> Iterator[str]:
    """The names that a piece of syntax reads, in the order written; names set in it among them."""
    if isinstance(part, Name):
        yield part.name
    elif isinstance(part, tuple | list):
        for item in part:
            yield from used_names(item)
    elif is_dataclass(part) and not isinstance(part, type | Span):
        for each in fields(part):
            if each.name != "span":
                yield from used_names(getattr(part, each.name))


def assigned_names(statements: Iterable[Statement]) -> Iterator[tuple[str, Span | None]]:
    """The names that statements set and leave behind: not the locals of a `for`."""
    for statement in statements:
        match statement:
            case Step(name=name, name_span=span):
                yield name, span
            case If(arms=arms, otherwise=otherwise):
                for _, body in arms:
                    yield from assigned_names(body)
                yield from assigned_names(otherwise)
            case Repeat(body=body):
                yield from assigned_names(body)


def later_steps(statements: Iterable[Statement]) -> dict[str, tuple[Span | None, frozenset[str]]]:
    """The steps of a block with where each is set and the names it uses, to explain a use that comes too early."""
    found: dict[str, tuple[Span | None, frozenset[str]]] = {}
    for statement in statements:
        uses = frozenset(used_names(statement))
        names = list(assigned_names((statement,)))
        match statement:
            case Spread(name=name, span=span):
                names.append((name, span))
            case GroupBy(body=body):
                names.extend(assigned_names(body))
        for name, span in names:
            found.setdefault(name, (span, uses))
    return found


def local_names(statements: Iterable[Statement]) -> dict[str, str]:
    """The names that live only inside a `for`, each with what to tell who reads them outside."""
    found: dict[str, str] = {}
    for statement in statements:
        if isinstance(statement, Step) and isinstance(statement.value, For):
            inner = [name for name, _ in assigned_names(statement.value.body)]
            for name in (statement.value.variable, *inner):
                found[name] = f"it is local to the `for` of `{statement.name}`; a value leaves it by `yield`"
    return found
