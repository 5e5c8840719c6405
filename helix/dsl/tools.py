"""Tools and pure functions: typed Python functions, and SQL, that a workflow calls."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import update_wrapper, wraps
from pathlib import Path
from typing import Any, overload

from helix.dsl.annotations import from_json, hints_of, is_structured, to_json, to_type
from helix.dsl.markers import refuse_markers
from helix.dsl.names import beside_built_ins, checked_name
from helix.dsl.places import KnownNames, assigned_name, function_span, here, names_here, problem
from helix.dsl.trace import Trace, tracing
from helix.dsl.values import Value, is_constant
from helix.errors import name_help
from helix.expr import Call, Expr, Literal, Name
from helix.span import Span
from helix.syntax import FunctionDecl, Option, Param, ToolDecl
from helix.types import JSON, TABLE, Optional, Type, optional

_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def parameters(function: Callable[..., Any], what: str, names: KnownNames) -> tuple[tuple[Param, ...], dict[str, Any]]:
    """The parameters of a typed function in the syntax tree, and its annotations. An untyped one is a mistake."""
    span = function_span(function)
    hints = hints_of(function, names)
    trace = Trace("", ())
    found: list[Param] = []
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if parameter.kind not in _KINDS:
            raise problem(f"`{name}` of {what} is not a plain parameter", "give each parameter a name and a type", span)
        checked_name(name, f"a parameter of {what}", span)
        if name not in hints:
            raise problem(f"parameter `{name}` of {what} has no type", f"write `{name}: str`", span)
        kind = to_type(hints[name], f"parameter `{name}` of {what}", span, names)
        default: Expr | None = None
        if parameter.default is None:
            # That an optional input is null where it is left out needs no saying.
            kind = optional(kind)
            default = None if isinstance(kind, Optional) else Literal(value=None, span=span)
        elif parameter.default is not parameter.empty:
            if not is_constant(parameter.default):
                raise problem(f"the default of `{name}` of {what} is not a constant", None, span)
            default = trace.lift(parameter.default)
        found.append(Param(name=name, type=kind, default=default, span=span))
    return tuple(found), hints


class Tool:
    """A tool that steps call: a Python function, a database, an HTTP address, a tool of an MCP server.

    Outside a workflow a Python function is the plain function.
    """

    def __init__(
        self,
        *,
        name: str,
        params: tuple[Param, ...],
        returns: Type,
        origin: str,
        target: str,
        traits: dict[str, Any],
        function: Callable[..., Any] | None,
        span: Span | None,
        python: Any = None,
    ) -> None:
        self.name = name
        self._params = params
        self._returns = returns
        self._origin = origin
        self._target = target
        self._function = function
        self._span = span
        self._python = python
        self._traits = tuple(option for trait, value in traits.items() for option in _trait(trait, value))
        if function is not None:
            update_wrapper(self, inspect.unwrap(function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace = tracing()
        if trace is None:
            if self._function is None:
                kind = self._origin.upper()
                raise problem(f"{kind} tool `{self.name}` is called only inside a function marked `@hx.workflow`")
            return self.__wrapped__(*args, **kwargs)
        hint = assigned_name()
        return trace.step(
            _call(self.declared(trace), self._params, args, kwargs, trace), hint=hint, python=self._python
        )

    __wrapped__: Callable[..., Any]

    @property
    def json_function(self) -> Callable[..., Any] | None:
        """The function over JSON values, as a run calls it; None for a tool that is no Python function."""
        return self._function

    def declared(self, trace: Trace) -> str:
        """The name that it has in a workflow, where it is declared at its first use."""

        def make(name: str) -> ToolDecl:
            if self._function is not None:
                trace.callables[name] = self._function
            return ToolDecl(
                name=name,
                params=self._params,
                returns=self._returns,
                origin=self._origin,
                target=self._target,
                traits=self._traits,
                span=self._span,
            )

        return trace.declare(self, beside_built_ins(self.name), "tool", make)


class Function:
    """A pure Python function of expressions. Called with constants only it is the plain function."""

    def __init__(self, name: str, params: tuple[Param, ...], returns: Type, function: Callable[..., Any]) -> None:
        self.name = name
        self._params = params
        self._returns = returns
        self._function = function
        self._target = target_of(function)
        self._span = function_span(inspect.unwrap(function))
        update_wrapper(self, inspect.unwrap(function))

    __wrapped__: Callable[..., Any]

    @property
    def json_function(self) -> Callable[..., Any]:
        """The function over JSON values, as a run calls it."""
        return self._function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace = tracing()
        if trace is None or is_constant([*args, *kwargs.values()]):
            return self.__wrapped__(*args, **kwargs)
        return Value(_call(self.declared(trace), self._params, args, kwargs, trace), trace)

    def declared(self, trace: Trace) -> str:
        """The name that it has in a workflow, where it is declared at its first use."""

        def make(name: str) -> FunctionDecl:
            trace.callables[name] = self._function
            return FunctionDecl(
                name=name, params=self._params, returns=self._returns, target=self._target, span=self._span
            )

        return trace.declare(self, beside_built_ins(self.name), "function", make)


@overload
def tool(function: Callable[..., Any]) -> Tool: ...
@overload
def tool(*, name: str | None = None, **traits: Any) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, *, name: str | None = None, **traits: Any) -> Any:
    """Marks a typed Python function as a tool: `@hx.tool(effects="read", cost="300ms", timeout="5s")`.

    Its annotations are the types of the tool. `effects` is one of pure, read, idempotent_write, write, destructive. The
    function gets and gives Python objects where its types say so (dataclasses, pydantic models, enums). Inside a
    workflow function each call makes a step.
    """
    names = names_here()

    def mark(function: Callable[..., Any]) -> Tool:
        shown, params, returns, hints = _read(function, name, "tool", names)
        python = hints.get("return")
        return Tool(
            name=shown,
            params=params,
            returns=returns,
            origin="python",
            target=target_of(function),
            traits=traits,
            function=adapted(function, hints),
            span=function_span(function),
            python=python if is_structured(python) else None,
        )

    return mark if function is None else mark(function)


@overload
def function(function: Callable[..., Any]) -> Function: ...
@overload
def function(*, name: str | None = None) -> Callable[[Callable[..., Any]], Function]: ...
def function(function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Marks a typed Python function as pure: it may be used inside expressions and prompts, and makes no step."""
    names = names_here()

    def mark(function: Callable[..., Any]) -> Function:
        shown, params, returns, hints = _read(function, name, "function", names)
        if inspect.iscoroutinefunction(function):
            raise problem(f"function `{shown}` is async", "mark it `@hx.tool`", function_span(function))
        return Function(shown, params, returns, adapted(function, hints))

    return mark if function is None else mark(function)


def sql_tool(
    name: str, source: str, params: dict[str, Any] | None = None, *, returns: Any = None, **traits: Any
) -> Tool:
    """Declares a SQL tool over `sqlite:file` or `duckdb:file`, relative to the workflow's folder, or a database URL.

    A URL is SQLAlchemy's, `postgresql+psycopg://reader:${SHOP_PASSWORD}@db/shop`. The tool is run read-only.

    `params` are its parameters with their types. With none it has one, `query: str`, the statement to run; otherwise
    the trait `query="SELECT ... WHERE id = :id"` is the statement. `returns` is a list of records (left out: a table).
    """
    kinds = {"query": str} if params is None else params
    return _declared("sql", name, source, kinds, TABLE if returns is None else returns, traits)


def http_tool(
    name: str, target: str, params: dict[str, Any] | None = None, *, returns: Any = None, **traits: Any
) -> Tool:
    """Declares an HTTP tool: `hx.http_tool("weather", "GET https://api.example.org/{city}", {"city": str})`.

    The address shows parameters as `{name}`. Those that it does not show go into the query, or for POST, PUT and PATCH
    into a JSON body. The trait `header="Authorization: Bearer ${TOKEN}"`, or a list of such texts, sends headers;
    `${NAME}` is taken from the environment. `returns` is what the JSON of the reply has to be (str: its text; left out:
    any JSON).
    """
    return _declared("http", name, target, params or {}, JSON if returns is None else returns, traits)


def mcp_tool(
    name: str, target: str, params: dict[str, Any] | None = None, *, returns: Any = None, **traits: Any
) -> Tool:
    """Declares a tool of an MCP server, `hx.mcp_tool("search", "docs:search_pages", {"query": str})`.

    `target` is `server:tool`: a server that `mcp.json` beside the workflow names, and a tool as that server calls it.
    `helix tools --server docs` prints what a server offers. `returns` is the type of the result (left out: any JSON).
    """
    return _declared("mcp", name, target, params or {}, JSON if returns is None else returns, traits)


def _declared(
    origin: str, name: str, target: str, params: dict[str, Any], returns: Any, traits: dict[str, Any]
) -> Tool:
    """A tool that is no Python function."""
    span = here()
    shown = checked_name(name, "a tool")
    refuse_markers(target, "the source of a tool", "a tool reads one database for all rows")
    found = tuple(
        Param(
            name=checked_name(param, f"a parameter of tool `{shown}`"),
            type=to_type(kind, f"parameter `{param}` of tool `{shown}`"),
            span=span,
        )
        for param, kind in params.items()
    )
    kind = returns if isinstance(returns, Type) else to_type(returns, f"the result of tool `{shown}`")
    return Tool(
        name=shown, params=found, returns=kind, origin=origin, target=target, traits=traits, function=None, span=span
    )


def target_of(function: Callable[..., Any]) -> str:
    """Where a function is found again: `module:name`. A script's own functions are of the module that it would be."""
    plain = inspect.unwrap(function)
    module = plain.__module__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        module = Path(file).stem if file else module
    return f"{module}:{plain.__qualname__.replace('<locals>.', '')}"


def adapted(function: Callable[..., Any], hints: dict[str, Any]) -> Callable[..., Any]:
    """The function over JSON values: objects made of its arguments, and its result taken apart, where types say so."""
    structured = {name: kind for name, kind in hints.items() if name != "return" and is_structured(kind)}
    if not structured and not is_structured(hints.get("return")):
        return function
    signature = inspect.signature(function)

    def given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        bound = signature.bind(*args, **kwargs)
        for name, kind in structured.items():
            if name in bound.arguments:
                bound.arguments[name] = from_json(bound.arguments[name], kind)
        return bound

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            bound = given(args, kwargs)
            return to_json(await function(*bound.args, **bound.kwargs))

        return run_async

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        bound = given(args, kwargs)
        return to_json(function(*bound.args, **bound.kwargs))

    return run


def _read(
    function: Callable[..., Any], name: str | None, word: str, names: KnownNames
) -> tuple[str, tuple[Param, ...], Type, dict[str, Any]]:
    if not inspect.isfunction(function):
        raise problem(f"`@hx.{word}` marks a function, found {type(function).__name__}", "write a `def` with types")
    span = function_span(function)
    shown = checked_name(function.__name__ if name is None else name, f"a {word}", span)
    params, hints = parameters(function, f"{word} `{shown}`", names)
    returns = to_type(hints["return"], f"the result of {word} `{shown}`", span, names) if "return" in hints else JSON
    return shown, params, returns, hints


def _call(name: str, params: tuple[Param, ...], args: tuple[Any, ...], kwargs: dict[str, Any], trace: Trace) -> Call:
    """The call as written, its arguments checked against the parameters."""
    check_arguments(f"`{name}`", params, args, kwargs)
    named = tuple((param, trace.lift(value)) for param, value in kwargs.items())
    return Call(function=name, args=tuple(trace.lift(arg) for arg in args), named=named, span=here())


def check_arguments(what: str, params: tuple[Param, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raises BindError where arguments are too many, unknown, given twice or missing."""
    names = [param.name for param in params]
    if len(args) > len(names):
        count = f"{len(names)} argument{'' if len(names) == 1 else 's'}"
        raise problem(f"{what} takes {count} ({', '.join(names)}), found {len(args)}")
    given = set(names[: len(args)])
    for name in kwargs:
        if name not in names:
            raise problem(f"{what} has no parameter `{name}`", name_help(name, names, "parameters"))
        if name in given:
            raise problem(f"{what} is given `{name}` twice")
    for param in params:
        missing = param.name not in given and param.name not in kwargs
        if missing and param.default is None and not isinstance(param.type, Optional):
            raise problem(f"{what} needs `{param.name}`")


def _trait(name: str, value: Any) -> list[Option]:
    """A trait as the text has it: once for each item of a list, and a list of names as one text."""
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        if name == "header":
            return [option for item in value for option in _trait(name, item)]
        value = ", ".join(value)
    span = here()
    if not isinstance(value, str | int | float):
        raise problem(f"trait `{name}` of a tool is a text or number, found {type(value).__name__}")
    if isinstance(value, str):
        refuse_markers(value, f"trait `{name}`", "a tool has the same traits for all rows")
    is_word = name == "effects" or (name == "freshness" and value == "until_write")
    word: Expr = Name(name=value, span=span) if is_word and isinstance(value, str) else Literal(value=value)
    return [Option(name=name, value=word, span=span)]
