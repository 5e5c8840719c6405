"""Declarations: constants, models, tools, functions and sub-workflows, checked before any step is bound."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from helix.durations import duration
from helix.errors import BindError, SourceErrors, TypeMismatch, name_help
from helix.expr import Expr, Literal, Name, walk
from helix.functions import ALIASES, FUNCTIONS
from helix.grammar.bind_expr import constant_value
from helix.grammar.declare_tools import check_function, declare_tool
from helix.grammar.scope import Context, Scope, assigned_names, constant, used_names
from helix.logical import Model
from helix.schema import NO_DEFAULT, Column
from helix.syntax import FunctionDecl, Let, ModelDecl, Option, Param, ToolDecl, UseDecl, Workflow
from helix.types import JSON, Type, found, mismatch, parse_cell

_SECRET = re.compile(r"(api_?)?key|secret|password|token|authorization", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionKind:
    """What an option of a model or a step takes: a test of its value, and the words for it."""

    expects: str
    accepts: Callable[[Any], bool]


def _is_int(low: int, high: int | None = None) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= low and (high is None or v <= high)


def _is_number(low: float, high: float) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, int | float) and not isinstance(v, bool) and low <= v <= high


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_stop(value: Any) -> bool:
    return _is_text(value) or (isinstance(value, list) and bool(value) and all(isinstance(v, str) and v for v in value))


_SAMPLING = {
    "temperature": OptionKind(
        expects="a number from 0 to 5, or null", accepts=lambda v: v is None or _is_number(0, 5)(v)
    ),
    "max_tokens": OptionKind(expects="an int of at least 1", accepts=_is_int(1)),
    "top_p": OptionKind(expects="a number from 0 to 1", accepts=_is_number(0, 1)),
    "seed": OptionKind(expects="an int", accepts=_is_int(-(1 << 63))),
    "stop": OptionKind(expects="a text or a list of texts", accepts=_is_stop),
    "extra": OptionKind(expects="a record", accepts=lambda v: isinstance(v, dict)),
}
_STEP = {
    "sample": OptionKind(expects="an int from 1 to 1000", accepts=_is_int(1, 1000)),
    "cache": OptionKind(expects="on or off", accepts=lambda v: isinstance(v, bool)),
    "attempts": OptionKind(expects="an int from 1 to 100", accepts=_is_int(1, 100)),
    "timeout": OptionKind(expects="a duration such as 30s", accepts=lambda v: duration(v) is not None),
    "reask": OptionKind(expects="an int from 0 to 10", accepts=_is_int(0, 10)),
    "coerce": OptionKind(expects="on or off", accepts=lambda v: isinstance(v, bool)),
    "on_error": OptionKind(expects="fail or null", accepts=lambda v: v in ("fail", "null", None)),
}
_NAMING = {
    "name": OptionKind(expects="a text", accepts=_is_text),
    "engine": OptionKind(expects="the address of an engine", accepts=_is_text),
}
MODEL_OPTIONS = _NAMING | _SAMPLING | {name: kind for name, kind in _STEP.items() if name != "sample"}
STEP_OPTIONS = _SAMPLING | _STEP


def declare(context: Context, scope: Scope, workflow: Workflow) -> None:
    """Reads all declarations of a workflow; steps may use a declaration that stands further down."""
    lets = [statement for statement in workflow.statements if isinstance(statement, Let)]
    for statement in workflow.statements:
        if isinstance(statement, FunctionDecl):
            _function(context, scope, statement)
    steps = {name for name, _ in assigned_names(workflow.statements)}
    scope.later = {let.name: (let.span, frozenset(used_names(let.value))) for let in lets}
    for let in lets:
        _constant(context, scope, let, steps)
    for statement in workflow.statements:
        match statement:
            case ModelDecl(name=name, span=span):
                _once(context, scope, name, span, context.models)
                option_values(context, scope, statement.options, MODEL_OPTIONS, MODEL_OPTIONS)
                context.models[name] = statement.options
            case ToolDecl(name=name, span=span):
                _once(context, scope, name, span, context.tools)
                inputs = columns(context, scope, statement.params, "parameter `{}` of `" + name + "`")
                context.tools[name] = declare_tool(context, statement, inputs)
            case FunctionDecl(name=name):
                columns(context, scope, statement.params, "parameter `{}` of `" + name + "`")
            case UseDecl(name=name, span=span):
                _once(context, scope, name, span, context.uses)
                _use(context, statement)
    for name in context.overrides:
        if name not in context.constants:
            known_constants = list(context.constants)
            message = f"`--set {name}`: the workflow has no constant `{name}`"
            context.error(BindError(message, None, name_help(name, known_constants, "constants")))


def _function(context: Context, scope: Scope, function: FunctionDecl) -> None:
    _once(context, scope, function.name, function.span, context.functions)
    if function.name in FUNCTIONS or function.name in ALIASES:
        message = f"`{function.name}` is a built-in function"
        context.error(BindError(message, function.span, "give the function another name"))
    check_function(context, function.target, function)
    context.functions[function.name] = function


def _once(context: Context, scope: Scope, name: str, span: Any, known: Iterable[str]) -> None:
    if name in known or name in scope.taken:
        context.error(BindError(f"`{name}` is declared twice", span, "give one of them another name"))
    else:
        scope.taken[name] = span


def _constant(context: Context, scope: Scope, let: Let, steps: set[str]) -> None:
    read = next((part for part in walk(let.value) if isinstance(part, Name) and part.name in steps), None)
    if read is not None:
        context.error(BindError("a `let` must be a constant", read.span, f"`{read.name}` is a step: make this one too"))
    value = None if read is not None else constant_value(context, scope, let.value, "a `let`")
    node = constant(value, let.span)
    override = context.overrides.get(let.name)
    if override is not None:
        kind: Type = JSON if value is None else node.type
        try:
            node = constant(parse_cell(override, kind), let.span)
        except ValueError as error:
            context.error(TypeMismatch(f"`--set {let.name}={override}`: {error}", let.span))
    scope.define(context, let.name, node, let.span)
    context.constants[let.name] = node


def option_values(
    context: Context, scope: Scope, options: tuple[Option, ...], kinds: dict[str, OptionKind], known: Iterable[str]
) -> dict[str, Any]:
    """The values of options by name; unknown ones, wrong values and secrets are mistakes."""
    values: dict[str, Any] = {}
    for option in options:
        name, span = option.name, option.span
        if name in values:
            context.error(BindError(f"option `{name}` stands twice", span))
        if name not in kinds:
            if _SECRET.fullmatch(name):
                help = "set HELIX_API_KEY or OPENAI_API_KEY in the environment"
                context.error(BindError("a secret does not belong in a workflow", span, help))
            elif name in _NAMING:
                help = "declare one, `model main { ... }`, and write `llm main`"
                context.error(BindError(f"option `{name}` belongs to a model", span, help))
            elif name in known:
                continue
            else:
                context.error(BindError(f"unknown option `{name}`", span, name_help(name, known, "options")))
            continue
        value = _option_value(context, scope, option.value, f"option `{name}`")
        if value is _MISTAKE:
            continue
        if not kinds[name].accepts(value):
            message = f"option `{name}` takes {kinds[name].expects}, found {found(value)}"
            context.error(TypeMismatch(message, option.value.span or span))
            continue
        values[name] = value
    return values


_MISTAKE = object()


def _option_value(context: Context, scope: Scope, expr: Expr, what: str) -> Any:
    """The constant value of an option; the words on, off, fail and null stand for themselves."""
    if isinstance(expr, Name) and expr.name not in scope.names and expr.name in ("on", "off", "fail"):
        return {"on": True, "off": False}.get(expr.name, expr.name)
    before = len(context.errors)
    value = constant_value(context, scope, expr, what)
    return _MISTAKE if len(context.errors) > before else value


def model_of(values: dict[str, Any]) -> Model:
    """The model that options describe. `temperature` left out is 0; null leaves it to the engine."""
    from helix.canonical import canonical_text

    temperature = values.get("temperature", 0)
    stop = values.get("stop", ())
    return Model(
        name=values.get("name"),
        engine=values.get("engine"),
        temperature=None if temperature is None else float(temperature),
        max_tokens=values.get("max_tokens"),
        top_p=None if values.get("top_p") is None else float(values["top_p"]),
        seed=values.get("seed"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        extra=tuple((name, canonical_text(value)) for name, value in values.get("extra", {}).items()),
    )


def columns(context: Context, scope: Scope, params: tuple[Param, ...], what: str) -> tuple[Column, ...]:
    """The inputs of a workflow or the parameters of a tool or function; `what` says so, with `{}` for the name.

    A name that stands twice, of which the first counts, and a default that does not fit are mistakes.
    """
    result: dict[str, Column] = {}
    for param in params:
        if param.name in result:
            context.error(BindError(f"{what.format(param.name)} stands twice", param.span))
            continue
        default: Any = NO_DEFAULT
        read = [part for part in walk(param.default or Literal(value=None)) if isinstance(part, Name)]
        unknown = next((part for part in read if part.name not in scope.names), None)
        if unknown is not None:
            context.error(BindError("a default must be a constant", unknown.span, "write a literal"))
        elif param.default is not None:
            before = len(context.errors)
            default = constant_value(context, scope, param.default, "a default")
            bad = mismatch(default, param.type) if len(context.errors) == before else None
            if bad:
                context.error(
                    TypeMismatch(f"the default of `{param.name}`: {bad[1]}", param.default.span or param.span)
                )
        result[param.name] = Column(param.name, param.type, default)
    return tuple(result.values())


def _use(context: Context, use: UseDecl) -> None:
    """Loads a sub-workflow: one given with the program, or a file beside or below the workflow's own."""
    loaded = _given(context, use) or _file(context, use)
    if loaded is None:
        context.broken.add(use.name)
        return
    module, folder, key = loaded
    if key in context.active:
        chain = " -> ".join((*(PurePosixPath(each).name for each in context.active), PurePosixPath(key).name))
        context.error(BindError(f"`use` goes round in a circle: {chain}", use.span))
        context.broken.add(use.name)
        return
    inner = Context(
        folder=folder,
        root=context.root,
        modules=context.modules,
        errors=context.errors,
        warnings=context.warnings,
        active=(*context.active, key),
        namespace=_namespace(context, folder, use.path),
        callables=context.callables,
        declared=context.declared,
        steps=context.steps,
    )
    context.uses[use.name] = (module, inner)


def _namespace(context: Context, folder: Path | None, path: str) -> str:
    """The path of a sub-workflow from the folder of the outermost workflow, so that it does not name the machine."""
    inner = context.inside(folder)
    return path if inner is None else (inner / PurePosixPath(path).name).as_posix()


def _given(context: Context, use: UseDecl) -> tuple[Workflow, Path | None, str] | None:
    module = context.modules.get(use.path)
    return None if module is None else (module, context.folder, use.path)


def _file(context: Context, use: UseDecl) -> tuple[Workflow, Path | None, str] | None:
    """A sub-workflow from its file, with its folder and its whole path."""
    from helix.grammar.parse import parse

    relative = PurePosixPath(use.path)
    if relative.is_absolute() or ".." in relative.parts or not use.path.endswith(".helix"):
        help = 'write a path below the workflow\'s own folder, such as "parts/extract.helix"'
        context.error(BindError(f'"{use.path}" cannot be used', use.span, help))
        return None
    if context.folder is None:
        context.error(BindError("a workflow that is not in a file cannot `use` one", use.span))
        return None
    path = context.folder / relative
    root = (context.root or path.parent).resolve()
    try:
        resolved = path.resolve(strict=True)
        if not resolved.is_relative_to(root):
            context.error(BindError(f'"{use.path}" lies outside the folder of the workflow', use.span))
            return None
        return parse(resolved.read_bytes(), str(path)), path.parent, str(resolved)
    except FileNotFoundError:
        siblings = sorted(each.name for each in path.parent.glob("*.helix")) if path.parent.is_dir() else []
        context.error(BindError(f'"{use.path}" does not exist', use.span, name_help(path.name, siblings, "files here")))
    except OSError as error:
        context.error(BindError(f'"{use.path}" cannot be read: {error.strerror}', use.span))
    except SourceErrors as failed:
        for each in failed.errors:
            context.error(each)
    return None
