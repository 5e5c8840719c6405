"""A workflow as an object: made of a Python function by `@hx.workflow`, or of a syntax tree."""

from __future__ import annotations

import inspect
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from helix.dsl.annotations import from_json
from helix.dsl.emit import emit
from helix.dsl.names import checked_name
from helix.dsl.places import KnownNames, assigned_name, function_span, here, names_here, problem
from helix.dsl.tables import Output
from helix.dsl.tools import check_arguments, parameters, target_of
from helix.dsl.trace import Trace, python_type, tracing
from helix.dsl.values import Value, kind_of
from helix.expr import Call
from helix.syntax import Param, UseDecl
from helix.syntax import Workflow as Syntax

if TYPE_CHECKING:
    from helix.explain.explanation import Explanation
    from helix.forecast.measures import Forecast
    from helix.grammar.bind import Bound
    from helix.results import RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traced:
    """What a workflow is, once its function was called."""

    syntax: Syntax
    callables: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    uses: Mapping[str, Workflow] = field(default_factory=dict)
    output_types: Mapping[str, Any] = field(default_factory=dict)


class Workflow:
    """A workflow that can be explained, checked and run, and called by other workflows.

    `syntax` is its tree, `callables` its Python tools and functions by their names in it, `uses` the workflows that it
    calls by the path in their `use`, `folder` where relative paths in it begin, `path` its own file where it has one.
    A workflow of a Python function is traced when one of these is first asked for.
    """

    def __init__(
        self,
        *,
        syntax: Syntax,
        callables: Mapping[str, Callable[..., Any]] | None = None,
        folder: Path | None = None,
        name: str | None = None,
        uses: Mapping[str, Workflow] | None = None,
        output_types: Mapping[str, Any] | None = None,
        path: Path | None = None,
    ) -> None:
        self.name = syntax.name if name is None else name
        self.folder = folder
        self.path = path
        self._function: Callable[..., Any] | None = None
        self._params: tuple[Param, ...] = syntax.params
        self._lock = threading.RLock()
        self._traced: _Traced | None = _Traced(
            syntax=syntax, callables=callables or {}, uses=uses or {}, output_types=output_types or {}
        )

    @classmethod
    def of_function(
        cls, function: Callable[..., Any], *, name: str | None = None, names: KnownNames | None = None
    ) -> Workflow:
        """The workflow that a function describes; `names` are those known where its annotations stand."""
        span = function_span(function)
        if not inspect.isfunction(function):
            raise problem(f"`@hx.workflow` marks a function, found {type(function).__name__}")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            help = "write a plain `def`: it is called once, to see its steps"
            raise problem(f"workflow `{function.__name__}` is async or a generator", help, span)
        made = cls.__new__(cls)
        made.name = checked_name(function.__name__ if name is None else name, "a workflow", span)
        file = Path(function.__code__.co_filename)
        made.folder = file.parent.resolve() if file.is_file() else Path.cwd()
        made.path = None
        made._function = function
        made._params, _ = parameters(function, f"workflow `{made.name}`", names or names_here())
        made._lock = threading.RLock()
        made._traced = None
        update_wrapper(made, function)
        return made

    # --- what it is ---

    @property
    def is_function(self) -> bool:
        """Whether it was written in Python: whoever wrote it may run code, and so read any file."""
        return self._function is not None

    @property
    def params(self) -> tuple[Param, ...]:
        """The inputs in the syntax tree; known without a trace."""
        return self._params

    @property
    def syntax(self) -> Syntax:
        """The syntax tree, equal to that of the same workflow written as text."""
        return self._trace().syntax

    @property
    def callables(self) -> Mapping[str, Callable[..., Any]]:
        """The Python tools and functions by their names in the workflow. They take and give JSON values."""
        return self._trace().callables

    @property
    def uses(self) -> Mapping[str, Workflow]:
        """The workflows that this one calls, by the path of their `use`."""
        return self._trace().uses

    @property
    def output_types(self) -> Mapping[str, Any]:
        """The Python types of columns whose values are dataclasses, pydantic models or enums, by column."""
        return self._trace().output_types

    def objects(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of the result with the Python objects that the workflow declared; null stays None.

        Raises ValueError (pydantic's ValidationError) where a value does not fit its type.
        """
        types = self.output_types
        return {
            name: from_json(value, types[name]) if name in types and value is not None else value
            for name, value in row.items()
        }

    def __repr__(self) -> str:
        return f"<workflow {self.name}({', '.join(f'{p.name}: {p.type}' for p in self.params)})>"

    def _repr_html_(self) -> str:
        from helix.errors import HelixError
        from helix.notebook import mistakes_html, workflow_html

        head = f"{self.name}({', '.join(f'{p.name}: {p.type}' for p in self.params)})"
        try:
            return workflow_html(head, self.to_text())
        except HelixError as error:
            return mistakes_html(head, error.render())

    # --- what it does ---

    def run(self, rows: Any = None, **options: Any) -> RunResult:
        """Runs the workflow over a table: see `helix.api.arun` for what it takes."""
        from helix import api

        return api.run(self, rows, **options)

    async def arun(self, rows: Any = None, **options: Any) -> RunResult:
        """Runs the workflow over a table inside a running event loop: see `helix.api.arun`."""
        from helix import api

        return await api.arun(self, rows, **options)

    def explain(self, rows: Any = None, **options: Any) -> Explanation:
        """What the workflow will do, over a table if one is given: see `helix.api.explain`."""
        from helix import api

        return api.explain(self, **(options if rows is None else {"rows": rows, **options}))

    def simulate(self, rows: Any = None, **options: Any) -> Forecast:
        """How long the workflow over a table will take on GPUs that are not there: see `helix.api.simulate`."""
        from helix import api

        return api.simulate(self, rows, **options)

    def check(self, **options: Any) -> Bound:
        """Finds mistakes without a call: see `helix.api.check`."""
        from helix import api

        return api.check(self, **options)

    def to_text(self) -> str:
        """The workflow as text, as `helix fmt` lays it out."""
        from helix import api

        return api.to_text(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Value:
        """Inside another workflow function: a step that runs this workflow; its value is the record of its outputs."""
        trace = tracing()
        if trace is None:
            help = f"write `{self.name}.run(rows)`; inside another workflow function a call makes a step"
            raise problem(f"workflow `{self.name}` is run over rows, not called", help)
        if trace.owner is self:
            raise problem(f"workflow `{self.name}` cannot call itself", "a loop is written `hx.repeat(...)`")
        hint, span = assigned_name(), here()
        path = self._path_from(trace.owner)
        path = next(p for p in _numbered(path) if trace.uses.get(p, self) is self)
        name = trace.declare(self, self.name, "workflow", lambda name: UseDecl(path=path, name=name, span=span))
        trace.uses[path] = self
        check_arguments(f"`{name}`", self.params, args, kwargs)
        named = tuple((key, trace.lift(value)) for key, value in kwargs.items())
        call = Call(function=name, args=tuple(trace.lift(arg) for arg in args), named=named, span=span)
        return trace.step(call, hint=hint)

    def _path_from(self, other: Any) -> str:
        """What a `use` in another workflow names: a file relative to its folder, else `module:name`."""
        if self.path is not None and other.folder is not None:
            return Path(os.path.relpath(self.path.resolve(), other.folder)).as_posix()
        if self._function is not None:
            return target_of(self._function)
        return f"{self.name}.helix"

    def _trace(self) -> _Traced:
        with self._lock:
            if self._traced is None:
                self._traced = self._call_once()
            return self._traced

    def _call_once(self) -> _Traced:
        function = self._function
        assert function is not None
        trace = Trace(self.name, self._params, self)
        span = function_span(function)
        with trace.active():
            returned = function(**{param.name: trace.input(param) for param in self._params})
            if not isinstance(returned, Output):
                found = kind_of(returned)
                help = "end it with `return hx.output(reply=reply)`"
                raise problem(f"workflow `{self.name}` returns {found}, not its output", help, span)
            if returned.trace is not trace:
                raise problem(f"workflow `{self.name}` returns the output of another", None, returned.item.span)
            trace.top.items.append(returned.item)
            syntax = emit(trace, span)
        columns = zip(syntax.statements[-1].items, returned.item.items, strict=True)  # type: ignore[union-attr]
        types = {item.name: kind for item, (expr, _) in columns if (kind := python_type(expr)) is not None}
        return _Traced(syntax=syntax, callables=trace.callables, uses=trace.uses, output_types=types)


@overload
def workflow(function: Callable[..., Any]) -> Workflow: ...
@overload
def workflow(*, name: str | None = None) -> Callable[[Callable[..., Any]], Workflow]: ...
def workflow(function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Marks a function as a workflow: its typed parameters are the inputs, and it returns `hx.output(...)`.

    The function is called once, when the workflow is first explained or run, with symbolic values for its inputs.
    """
    names = names_here()

    def mark(function: Callable[..., Any]) -> Workflow:
        return Workflow.of_function(function, name=name, names=names)

    return mark if function is None else mark(function)


def _numbered(path: str) -> Iterator[str]:
    """The path, and others for workflows that a function made several of."""
    yield path
    yield from (f"{path}_{number}" for number in itertools.count(2))
