"""Workflow text to a syntax tree."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

from helix.errors import ParseError, SourceError, SourceErrors
from helix.grammar.explain_error import explain, explain_name
from helix.grammar.places import statements
from helix.span import Source, Span
from helix.syntax import Comment, Workflow

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

MAX_ERRORS = 10
MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 150
_REFUSED = re.compile("[\0\ud800-\udfff]")


def parse(text: str | bytes, name: str = "<workflow>") -> Workflow:
    """The syntax tree of a workflow's text.

    `name` is the file's name for messages. Bytes are read as UTF-8, a BOM dropped; CRLF line ends count as LF. Raises
    SourceErrors with every mistake found.
    """
    decoded = _decode(text, name)
    source = Source(name=name, text=decoded)
    try:
        return _parse_once(decoded, source, "file")
    except ParseError as error:
        raise SourceErrors(_mistakes(decoded, source, error)) from None


def _mistakes(text: str, source: Source, first: ParseError) -> list[SourceError]:
    """The mistakes of a text that is no workflow: each statement is read by itself, so that one hides no other."""
    found: list[SourceError] = []
    for offset, statement in statements(text):
        # What is not the head of the file gets a line with another head before it.
        head = "workflow w()\n" if offset else ""
        try:
            _parse_once(head + statement, source, "statement" if offset else "file")
        except SourceErrors as failed:
            found += _shifted(failed.errors, text.count("\n", 0, offset) - head.count("\n"))
        except ParseError as error:
            found += _shifted((error,), text.count("\n", 0, offset) - head.count("\n"))
        if len(found) >= MAX_ERRORS:
            break
    return found[:MAX_ERRORS] or [first]


def _shifted(errors: Iterable[SourceError], lines: int) -> list[SourceError]:
    for error in errors:
        if error.span is not None:
            span = error.span
            error.span = replace(span, line=span.line + lines, end_line=span.end_line + lines)
    return list(errors)


class _Comments(threading.local):
    """The comments of this thread's current parse: where each begins, and its text."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []


_comments = _Comments()
_COMMENT = re.compile("#[^\n]*")


def _keep_comments(token: Token) -> Token:
    """Notes the comments of a token that is a comment, or that holds line breaks with the comments between them."""
    start = token.start_pos or 0
    _comments.found += [(start + found.start(), found[0].rstrip()) for found in _COMMENT.finditer(token)]
    return token


class _BadName(Exception):
    """A name with a character that cannot stand in one."""

    def __init__(self, token: Token) -> None:
        super().__init__()
        self.token = token


def _check_name(token: Token) -> Token:
    if not token.isidentifier():
        raise _BadName(token)
    return token


@cache
def _lark() -> Lark:
    import lark

    grammar = Path(__file__).with_name("helix.lark")
    return lark.Lark(
        grammar.read_text(encoding="utf-8"),
        cache=_tables_file(grammar, lark.__version__),
        parser="lalr",
        lexer="contextual",
        propagate_positions=True,
        maybe_placeholders=False,
        lexer_callbacks={
            "COMMENT": _keep_comments,
            "_NL": _keep_comments,
            "_CARRY": _keep_comments,
            "NAME": _check_name,
        },
    )


def _tables_file(grammar: Path, version: str) -> str | bool:
    """Where the parser's tables are kept, which take 0.6 s to make: beside Python's own bytecode, as safe as it is.

    lark makes them anew where they are of another grammar or cannot be read, and goes on where they cannot be written.
    """
    if sys.dont_write_bytecode or sys.implementation.cache_tag is None:
        return False
    return str(Path(cache_from_source(str(grammar))).with_suffix(f".lark-{version}"))


def _parse_once(text: str, source: Source, what: str) -> Workflow:
    from lark.exceptions import UnexpectedInput

    from helix.grammar.build import Builder

    _comments.found = []
    try:
        tree = _lark().parse(text)
    except UnexpectedInput as error:
        raise explain(error, text, source, what) from None
    except _BadName as error:
        raise explain_name(error.token, source) from None
    _refuse_depth(tree, source)
    builder = Builder(source)
    workflow = builder.build(tree)
    if builder.errors:
        raise SourceErrors(builder.errors)
    return replace(workflow, comments=_placed(_comments.found, text))


def _refuse_depth(tree: Tree[Token], source: Source) -> None:
    """Refuses what is nested so deeply that walking it would exhaust the stack. A chain of operands nests too."""
    from lark import Tree

    stack: list[tuple[Tree[Token], int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        chain = node.data in ("expr", "and_expr", "sum", "product")
        depth += len(node.children) // 2 if chain else 1
        if depth > MAX_DEPTH:
            line = getattr(node.meta, "line", 1)
            place = _at(source, line, getattr(node.meta, "column", 1))
            raise ParseError(f"more than {MAX_DEPTH} levels of nesting", place, "give parts of it steps of their own")
        stack.extend((child, depth) for child in node.children if isinstance(child, Tree))


def _placed(found: list[tuple[int, str]], text: str) -> tuple[Comment, ...]:
    comments: list[Comment] = []
    line, position = 1, 0
    for start, shown in found:
        line += text.count("\n", position, start)
        position = start
        alone = not text[text.rfind("\n", 0, start) + 1 : start].strip()
        comments.append(Comment(line=line, text=shown, alone=alone))
    return tuple(comments)


def _decode(text: str | bytes, name: str) -> str:
    if isinstance(text, bytes):
        try:
            decoded = text.decode("utf-8")
        except UnicodeDecodeError as error:
            before = text[: error.start].decode("utf-8", errors="replace")
            place = _at(Source(name=name, text=before), before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1)
            found = f"the file is not UTF-8: byte 0x{text[error.start]:02x}"
            raise SourceErrors([ParseError(found, place, "save it as UTF-8")]) from None
    else:
        decoded = text
    decoded = decoded.removeprefix("\ufeff").replace("\r\n", "\n")
    if len(decoded) > MAX_BYTES:
        message = f"the workflow has {len(decoded)} characters; at most {MAX_BYTES} are read"
        place = _at(Source(name=name, text=""), 1, 1)
        raise SourceErrors([ParseError(message, place, "put long texts into the table's columns")])
    refused = _REFUSED.search(decoded)
    if refused is not None:
        offset = refused.start()
        line = decoded.count("\n", 0, offset) + 1
        column = offset - decoded.rfind("\n", 0, offset)
        shown = decoded[:offset]
        message = f"character U+{ord(refused[0]):04X} cannot stand in a workflow"
        raise SourceErrors([ParseError(message, _at(Source(name=name, text=shown), line, column))])
    return decoded


def _at(source: Source, line: int, column: int) -> Span:
    return Span(source=source, line=line, column=column, end_line=line, end_column=column + 1)
