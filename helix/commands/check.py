"""The command `helix check`: mistakes in workflows, in words for people or as JSON for editors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helix.errors import HelixError, InputError, OptionError, SourceError, SourceErrors
from helix.executor.tables.terminal import escaped
from helix.progress import clean, say
from helix.span import Span

if TYPE_CHECKING:
    from helix.dsl import Workflow
    from helix.grammar.scope import Warning

WRONG = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One mistake or warning at a place. Lines and columns count from 1, columns in characters; the end is exclusive.

    A mistake without a place has None for them.
    """

    file: str
    line: int | None
    column: int | None
    end_line: int | None
    end_column: int | None
    severity: str
    message: str
    help: str | None


def check_command(
    files: tuple[str, ...],
    constants: Mapping[str, str],
    load: Callable[[str], Workflow],
    *,
    as_json: bool,
    named: str | None,
) -> int:
    """Checks each file; `-` is standard input, which messages call `named` and whose files lie beside that."""
    if named is not None and files != ("-",):
        raise OptionError("--as names what comes from standard input: give `-` as the only file")
    found: list[Diagnostic] = []
    wrong = 0
    for file in files:
        name = (named or "<stdin>") if file == "-" else file
        try:
            warnings = _checked(_from_stdin(named) if file == "-" else load(file), constants)
        except HelixError as error:
            wrong += 1
            found += _told(error, name)
            if not as_json:
                say(error.render())
            continue
        found += (_at(each.span, name, "warning", each.message, None) for each in warnings)
        if not as_json:
            for each in warnings:
                say(f"warning: {each.message}{f' ({each.span})' if each.span is not None else ''}")
            say(f"{name}: ok")
    if as_json:
        print(escaped(json.dumps([asdict(each) for each in found], ensure_ascii=False, indent=2)))
    return WRONG if wrong else 0


def _from_stdin(named: str | None) -> Workflow:
    from helix import api

    data = sys.stdin.buffer.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from None
    return api.loads(text, name=named or "<stdin>", folder=None if named is None else Path(named).parent)


def _checked(workflow: Workflow, constants: Mapping[str, str]) -> tuple[Warning, ...]:
    """The warnings of a workflow in which nothing is wrong. Raises HelixError."""
    from helix import api
    from helix.callables import look_up_callables

    bound = api.check(workflow, set=dict(constants))
    look_up_callables(workflow, bound)
    return bound.warnings


def _told(error: HelixError, name: str) -> Iterator[Diagnostic]:
    match error:
        case SourceErrors(errors=errors):
            for each in errors:
                yield from _told(each, name)
        case SourceError(span=span, message=message, help=help):
            yield _at(span, name, "error", message, help)
        case InputError(message=message, help=help):
            yield _at(None, name, "error", message, help)
        case _:
            yield _at(None, name, "error", str(error), None)


def _at(span: Span | None, name: str, severity: str, message: str, help: str | None) -> Diagnostic:
    return Diagnostic(
        file=name if span is None else span.source.name,
        line=None if span is None else span.line,
        column=None if span is None else span.column,
        end_line=None if span is None else span.end_line,
        end_column=None if span is None else span.end_column,
        severity=severity,
        message=clean(message),
        help=None if help is None else clean(help),
    )
