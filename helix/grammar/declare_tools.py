"""Declarations of tools: where one comes from, what its traits say, and that the two fit together."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, get_args

from helix.durations import duration
from helix.errors import BindError, TypeMismatch, name_help
from helix.expr import Literal, Name
from helix.grammar.scope import Context, DeclaredTool
from helix.logical import Effects, Tool
from helix.schema import Column
from helix.services import Origin
from helix.sql.clock import is_volatile
from helix.syntax import FunctionDecl, Option, ToolDecl
from helix.tools.targets import FILES, header, http_target, mcp_target, sql_backend
from helix.types import JSON, TEXT, ListOf, Table, fits

EFFECTS: tuple[Effects, ...] = get_args(Effects)
ORIGINS: tuple[Origin, ...] = get_args(Origin)
_FLAG = "true or false"
_WHOLE = "an int of at least 1"
# What the traits take.
TRAITS = {
    "cancellable": _FLAG,
    "concurrency": _WHOLE,
    "cost": "a duration such as 300ms",
    "description": "a text",
    "effects": "a class of effects",
    "fee": "a number",
    "freshness": "a duration such as 5m, `until_write` or 0",
    "header": 'a text such as "Accept: text/plain"',
    "hosts": "a text with commas between hosts",
    "lane": "a name",
    "max_bytes": _WHOLE,
    "max_rows": _WHOLE,
    "open_world": _FLAG,
    "query": "a text in quotes",
    "rate_group": "a name",
    "reads": "a text with commas between names",
    "speculate": _FLAG,
    "timeout": "a duration such as 5s",
    "version": "a text or an int",
    "writes": "a text with commas between names",
}
_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_NO_TIME = re.compile(r"0+(?:\.0+)?(?:ms|s|m|h)?")
_DOMAIN = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")
_WORDS = {"true": True, "on": True, "false": False, "off": False}
# What only tools of some origins have.
_ONLY: dict[str, tuple[Origin, ...]] = {
    "header": ("http",),
    "hosts": ("http",),
    "query": ("sql",),
    "version": ("python", "http", "mcp"),
}


def declare_tool(context: Context, tool: ToolDecl, params: tuple[Column, ...]) -> Tool:
    """The tool of a declaration; what is wrong with it becomes mistakes."""
    origin = next((each for each in ORIGINS if each == tool.origin), None)
    if origin is None:
        help = name_help(tool.origin, ORIGINS, "kinds of tools")
        context.error(BindError(f"no tools come from `{tool.origin}`", tool.span, help))
    made = Tool(
        name=context.qualified(tool.name),
        origin=origin or "python",
        target=_database(context, tool.target) if origin == "sql" else tool.target,
        params=params,
        returns=tool.returns,
        effects="read" if origin == "sql" else "unknown",
        open_world=origin in ("http", "mcp"),
        hinted=origin == "mcp" and all(trait.name != "effects" for trait in tool.traits),
    )
    for trait in tool.traits:
        made = _with_trait(context, made, trait)
    match origin:
        case "python":
            check_function(context, tool.target, tool)
        case "sql":
            made = _sql(context, made, tool)
        case "http":
            _http(context, made, tool)
        case "mcp":
            _refused(context, tool, lambda: mcp_target(tool.target))
    if made.effects in ("pure", "read") and made.writes:
        message = f"`{tool.name}` writes {', '.join(made.writes)}, so its effects are not `{made.effects}`"
        context.error(BindError(message, tool.span, "write `effects write`"))
    if made.effects == "pure" and made.reads:
        message = f"`{tool.name}` reads {', '.join(made.reads)}, so its effects are not `pure`"
        context.error(BindError(message, tool.span, "write `effects read`"))
    says_effects = any(trait.name == "effects" for trait in tool.traits)
    context.declared[made.name] = DeclaredTool(tool=made, says_effects=says_effects)
    return made


def check_function(context: Context, target: str, declared: ToolDecl | FunctionDecl) -> None:
    """Notes the Python function of a declaration, to be looked up later."""
    if not _TARGET.fullmatch(target):
        message = f'"{target}" names no Python function'
        context.error(BindError(message, declared.span, 'write "module:function"'))
    context.declare_callable(declared.name, target)


def _refused(context: Context, tool: ToolDecl, read: Any) -> Any:
    """What `read` gives; a ValueError becomes a mistake of the declaration, and None."""
    try:
        return read()
    except ValueError as error:
        message, _, help = str(error).partition("; ")
        context.error(BindError(message, tool.span, help or None))
        return None


# --- sql ----------------------------------------------------------------------------------------------------------


def _sql(context: Context, made: Tool, tool: ToolDecl) -> Tool:
    backend = _refused(context, tool, lambda: sql_backend(tool.target))
    # Of other databases nobody here knows the functions: each call is made, unless the tool says how long one holds.
    if made.query is not None and made.freshness is None and (backend != "sqlite" or is_volatile(made.query)):
        made = replace(made, freshness=Tool.NOT_FRESH)
    if not (fits(Table(), made.returns) or made.returns == ListOf(JSON)):
        context.error(TypeMismatch(f"a sql tool returns a table, found {made.returns}", tool.span))
    if made.query is None and not any(column.name == "query" and column.type == TEXT for column in made.params):
        help = 'add a parameter `query: text`, or a fixed statement: query "SELECT ..."'
        context.error(BindError(f"sql tool `{tool.name}` has no statement to run", tool.span, help))
    if made.effects not in ("read", "pure"):
        context.error(BindError("sql tools are read-only", tool.span, "write `effects read`"))
    return made


def _database(context: Context, target: str) -> str:
    """A database named relative to a sub-workflow's folder, as the outermost workflow names it."""
    kind, _, file = target.partition(":")
    path = PurePosixPath(file)
    inner = context.inside(context.folder) if context.namespace and kind in FILES else None
    return target if inner is None or path.is_absolute() else f"{kind}:{(inner / path).as_posix()}"


# --- http ---------------------------------------------------------------------------------------------------------


def _http(context: Context, made: Tool, tool: ToolDecl) -> None:
    target = _refused(context, tool, lambda: http_target(tool.target))
    if target is None:
        return
    known = [param.name for param in made.params]
    for slot in target.slots:
        if slot not in known:
            message = f"the address shows `{slot}`, which is no parameter of `{tool.name}`"
            context.error(BindError(message, tool.span, name_help(slot, known, "parameters")))


# --- traits -------------------------------------------------------------------------------------------------------


def _with_trait(context: Context, made: Tool, trait: Option) -> Tool:
    value, name = trait.value, trait.name
    word = value.name if isinstance(value, Name) else value.value if isinstance(value, Literal) else None
    if name not in TRAITS:
        help = name_help(name, TRAITS, "traits", most=len(TRAITS))
        context.error(BindError(f"unknown trait `{name}`", trait.span, help))
        return made
    if made.origin in _ONLY.get(name, ORIGINS):
        try:
            changed = _changes(made, name, word, isinstance(value, Literal))
        except ValueError as error:
            context.error(BindError(str(error), trait.span))
            return made
        if changed is not None:
            return replace(made, **changed)
    if name == "effects":
        help = name_help(str(word), EFFECTS, "effects")
        context.error(BindError(f"unknown effects `{word}`", trait.span, help))
    elif made.origin not in _ONLY.get(name, ORIGINS):
        message = f"`{name}` is no trait of tools from {made.origin}"
        context.error(BindError(message, trait.span, f"tools from {' and '.join(_ONLY[name])} have it"))
    else:
        message = f"`{word}` does not fit the trait `{name}`"
        context.error(TypeMismatch(message, trait.span, f"`{name}` takes {TRAITS[name]}"))
    return made


def _changes(made: Tool, name: str, word: Any, literal: bool) -> dict[str, Any] | None:
    """The fields that a trait sets; None where its value does not fit. Raises ValueError that says why."""
    text = word if isinstance(word, str) and word.strip() else None
    whole = word if isinstance(word, int) and not isinstance(word, bool) and word > 0 else None
    match name:
        case "effects" if word in EFFECTS:
            return {name: word}
        case "cost" | "timeout" if (seconds := duration(word)) is not None:
            return {name: seconds}
        case "lane" if isinstance(word, str):
            return {name: word}
        case "rate_group" | "description" if text is not None:
            return {name: text}
        case "freshness" if _is_nothing(word):
            return {name: Tool.NOT_FRESH}
        case "freshness" if isinstance(word, str):
            if word != Tool.UNTIL_WRITE and duration(word) is None:
                return None
            return {name: word}
        case "version" if isinstance(word, str | int) and not isinstance(word, bool):
            return {name: str(word)}
        case "query" if isinstance(word, str) and literal:
            return {name: word}
        case "max_rows" | "max_bytes" | "concurrency" if whole is not None:
            return {name: whole}
        case "fee" if isinstance(word, int | float) and not isinstance(word, bool) and 0 <= word < float("inf"):
            return {name: float(word)}
        case "cancellable" | "open_world" | "speculate":
            held = _WORDS.get(word, word) if isinstance(word, str) else word
            return {name: held} if isinstance(held, bool) else None
        case "reads" | "writes" if isinstance(word, str):
            return {name: _domains(getattr(made, name), word)}
        case "header" if text is not None:
            header(text)
            return {"headers": (*made.headers, text)}
        case "hosts" if text is not None:
            added = (host.strip().lower() for host in text.split(","))
            return {name: tuple(dict.fromkeys((*made.hosts, *(host for host in added if host))))}
    return None


def _domains(before: tuple[str, ...] | None, text: str) -> tuple[str, ...]:
    """State domains of a list with commas, with those named before, in order of their names; "" is none at all."""
    found = [part.strip() for part in text.split(",")] if text.strip() else []
    for part in found:
        if not _DOMAIN.fullmatch(part):
            raise ValueError(f"a state domain is a name such as orders or shop.orders, found `{part}`")
    return tuple(sorted({*(before or ()), *found}))


def _is_nothing(word: object) -> bool:
    """Whether a time is none at all: `0`, `0s`."""
    return (word == 0 and not isinstance(word, bool)) or (
        isinstance(word, str) and _NO_TIME.fullmatch(word) is not None
    )
