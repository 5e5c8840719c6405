"""The normal form of a SQL query: one text for queries that differ only in how they are written down.

What is normalised is what SQLite does not look at: white space and comments, how keywords are written, `!=` for `<>`,
an `AS` left out, brackets around what needs none, the last `;`. The rest of the text stays as it is, down to the
spelling of names: SQLite calls a result column without `AS` by the text of its expression. So the two texts are one
program to SQLite, and sqlglot's parse of both is compared to make sure.
"""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from helix.sql.lexer import tokens_of
from helix.sql.writer import Writer

if TYPE_CHECKING:
    from sqlglot.expressions import Query


@lru_cache(maxsize=4096)
def normal_query(statement: str) -> str:
    """The normal form of a query; the statement itself where it is no single query that SQLite can read."""
    parsed = parse_query(statement)
    tokens = tokens_of(statement)
    if parsed is None or tokens is None:
        return statement
    end = len(statement)
    while tokens and tokens[-1].text == ";":
        end, tokens = tokens[-1].start, tokens[:-1]
    try:
        names, meaning = _names(parsed), _shape(parsed)
        for bare in (True, False):
            written = Writer(statement[:end], tokens, names, bare=bare).text()
            again = parse_query(written)
            if again is not None and _shape(again) == meaning:
                return written if _is_readable(statement) else statement
    except RecursionError:
        # Nested deeper than Python walks: nobody writes it twice.
        return statement
    return statement


def parse_query(statement: str) -> Query | None:
    """What sqlglot reads in a statement, where that is one query; else None."""
    import sqlglot
    from sqlglot import exp

    try:
        roots = [each for each in sqlglot.parse(statement, read="sqlite") if each is not None]
    except Exception:
        # Whatever the parser stumbles over, the statement stays as it is and fails where it is run.
        return None
    return roots[0] if len(roots) == 1 and isinstance(roots[0], exp.Query) else None


def _is_readable(statement: str) -> bool:
    """Whether SQLite itself gets as far as looking for the tables: what it says of a mistake before quotes the text."""
    database = sqlite3.connect(":memory:")
    try:
        database.execute(f"EXPLAIN {statement}", _Anything()).close()
    except sqlite3.Error as error:
        return str(error).startswith(("no such table", "unknown database"))
    finally:
        database.close()
    return True


class _Anything(dict[str, Any]):
    """A value for any parameter."""

    def __missing__(self, name: str) -> None:
        return None


def _names(parsed: Query) -> frozenset[str]:
    """The names that a query gives or uses, in small letters: words among them are no keywords there."""
    from sqlglot import exp

    return frozenset(part.name.lower() for part in parsed.find_all(exp.Identifier))


def _shape(parsed: Query) -> Any:
    """What a query says, without brackets and without the shape of chains of `and` and `or`."""
    from sqlglot import exp

    bare = parsed.copy()
    for bracket in list(bare.find_all(exp.Paren)):
        if bracket.parent is not None:
            bracket.replace(bracket.this)
    return _folded(bare)


def _folded(node: Any) -> Any:
    """A tree of sqlglot as nested tuples: comments are no part of it."""
    from sqlglot import exp

    if isinstance(node, list):
        return tuple(_folded(each) for each in node)
    if not isinstance(node, exp.Expression):
        return node
    if isinstance(node, exp.Anonymous):
        return ("Anonymous", node.name.lower(), _folded(node.expressions))
    if isinstance(node, exp.And | exp.Or):
        return (type(node).__name__, tuple(_folded(each) for each in node.flatten(unnest=False)))
    given = sorted((name, value) for name, value in node.args.items() if value not in (None, False, []))
    return (type(node).__name__, tuple((name, _folded(value)) for name, value in given))
