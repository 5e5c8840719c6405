"""What a SQL statement does: the class of its effects, and the tables that it reads, by its parse (sqlglot).

A statement is `read` only where all that it is made of is known to be harmless; whatever is odd, new, or read in two
ways is `unknown`. What a parse cannot see stays for the connection to guard: a view may call anything, and a database
may have functions of its own under the names of known ones. So statements run on connections that cannot write.
"""

from __future__ import annotations

import logging
import re
import threading
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any

from helix.services import Effects
from helix.sql.clock import is_volatile
from helix.sql.names import (
    FUNCTIONS,
    NAMED,
    NAMED_VOLATILE,
    NOW,
    QUERIES,
    ROW_FUNCTIONS,
    ROW_NAMES,
    STRUCTURE,
    TIMES,
    VOLATILE,
    WRITES,
)
from helix.tools.effects import Domains, Effect, join

# What databases take for a file, an address, a stage or a pattern of such, rather than for a table.
_NO_TABLE = re.compile(r"[./\\:@*?%~\[\]{}]|^\s*$")
# Words that a statement begins with which may be a query.
_ASKS = frozenset(("SELECT", "WITH", "VALUES", "FROM", "TABLE", "("))
# Databases whose `@name` is a variable of the connection rather than a parameter.
_VARIABLES = frozenset(("mysql", "singlestore", "doris", "starrocks"))
# Databases in which a text may hold `\'` or not, by a setting.
_BACKSLASHES = frozenset(("mysql", "postgres", "redshift", "singlestore", "doris", "starrocks"))
_DML: dict[str, Effects] = {
    "Insert": "write", "Create": "write", "Update": "destructive", "Delete": "destructive", "Merge": "destructive",
    "Drop": "destructive", "Alter": "destructive", "TruncateTable": "destructive", "Copy": "destructive",
    "Into": "write",
}  # fmt: skip
# A parse takes a second for some hundred thousand signs.
_LONGEST = 20_000
_TEMPORAL = ("DATE", "TIME", "TIMESTAMP", "DATETIME")


@lru_cache(maxsize=4096)
def sql_effect(statement: str, dialect: str, tables: Collection[str] | None = None) -> Effect:
    """What a statement does in a dialect of sqlglot's (`sqlite`, `duckdb`, `postgres`, `mysql`, `tsql`, ...).

    `reads` are the tables that it reads, in small letters and without schema. `tables` (hashable: a frozenset) are
    those that are no views, where that is known: a query of any other is `unknown`, since a view may call what its text
    does not show. What writes may have triggers: it writes all there is. Raises ValueError for a dialect that sqlglot
    does not know.
    """
    import sqlglot
    from sqlglot.errors import SqlglotError

    if not dialect:
        raise ValueError("a statement is read in the dialect of its database; none was given")
    sqlglot.Dialect.get_or_raise(dialect)
    if len(statement) > _LONGEST:
        return _unknown("it is too long to be looked at")
    odd = _odd(statement, dialect)
    if odd is not None:
        return _unknown(odd)
    try:
        tokens = sqlglot.tokenize(statement, read=dialect)
        words = [token.text.upper() for token in tokens]
        ends = [place for place, token in enumerate(tokens) if token.token_type.name == "SEMICOLON"]
        if not tokens:
            return _unknown("there is no statement")
        if ends and ends[0] != len(tokens) - len(ends):
            return _unknown("it is more than one statement")
        if words[0] in WRITES:
            return Effect(effects=_written(words), reads=None, writes=None, reason=f"it begins with {words[0]}")
        if words[0] not in _ASKS:
            return _unknown(f"it begins with {words[0]}")
        with _quiet():
            roots = sqlglot.parse(statement, read=dialect)
    except (SqlglotError, RecursionError, ValueError) as error:
        return _unknown(f"it cannot be parsed ({type(error).__name__})")
    if len(roots) != 1 or roots[0] is None:
        return _unknown("it is not one statement")
    try:
        return _query(roots[0], statement, dialect, tables)
    except RecursionError:
        return _unknown("it is nested too deeply")


class _Quiet(logging.Filter):
    """Drops what sqlglot says of statements that it does not take apart: here they are `unknown`, and that is all."""

    def __init__(self) -> None:
        super().__init__()
        self.here = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(self.here, "on", False)


_QUIET = _Quiet()


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("sqlglot")
    if _QUIET not in logger.filters:
        logger.addFilter(_QUIET)
    _QUIET.here.on = True
    try:
        yield
    finally:
        _QUIET.here.on = False


def _unknown(reason: str) -> Effect:
    return Effect(effects="unknown", reason=reason)


def _written(words: list[str]) -> Effects:
    """The class of a statement that writes, by its words."""
    first = words[0]
    effects: Effects = WRITES[first]
    pairs = {*pairwise(words)}
    if first == "CREATE":
        if ("OR", "REPLACE") in pairs:
            return "destructive"
        # Done twice it is done once.
        return "idempotent_write" if ("IF", "NOT") in pairs else "write"
    if first == "INSERT" and ({"REPLACE", "OVERWRITE"} & {*words} or {("DO", "UPDATE"), ("KEY", "UPDATE")} & pairs):
        return "destructive"
    return effects


def _odd(statement: str, dialect: str) -> str | None:
    """Why databases and the parser might read the text of a statement in two ways; None where they do not."""
    for sign in statement:
        if sign not in " \t\n\r" and unicodedata.category(sign) in ("Cc", "Cf", "Zs", "Zl", "Zp", "Cs"):
            return "it holds a sign that cannot be seen"
    if re.search(r"\r(?!\n)", statement):
        return "it holds a carriage return that ends no line"
    if "/*!" in statement or "/*M!" in statement:
        return "it holds a comment that MySQL runs"
    opened = re.search(r"/\*(?:(?!\*/).)*?/\*", statement, re.DOTALL)
    if opened or statement.count("/*") != statement.count("*/"):
        return "it holds a comment within a comment, or one without an end"
    if re.search(r"\\['\"`]", statement) or (dialect in _BACKSLASHES and "\\" in statement):
        return "it holds a backslash that may or may not escape"
    if dialect in _VARIABLES and re.search(r"--(?![ \t\r\n]|\Z)", statement):
        return "it holds two minus signs that are no comment to MySQL"
    return None


def _query(root: Any, statement: str, dialect: str, tables: Collection[str] | None) -> Effect:
    kind = type(root).__name__
    found: Effects = "read"
    volatile = dialect == "sqlite" and is_volatile(statement)
    reason = ""
    if kind not in QUERIES:
        found, reason = _DML.get(kind, "unknown"), f"it is {kind.upper()}"
    for part in root.walk():
        effects, again, why = _part(part, dialect)
        if effects != "read" and join(found, effects) != found:
            found, reason = join(found, effects), why
        volatile = volatile or again
    reads = tuple(sorted({name for name, _ in _tables(root)}))
    if found == "read":
        for name, sound in _tables(root):
            if not sound:
                found, reason = "unknown", f"`{name}` may be a file, an address or a function"
            elif tables is not None and name not in tables:
                found, reason = "unknown", f"`{name}` is no table that is known: a view may call anything"
    harmless = found == "read"
    state: Domains = reads if harmless else None
    return Effect(
        effects=found, reads=state, writes=() if harmless else None, volatile=harmless and volatile, reason=reason
    )


def _part(part: Any, dialect: str) -> tuple[Effects, bool, str]:
    """What a part of a query adds: its effects, whether it gives another result each time, and why."""
    from sqlglot import exp

    kind = type(part).__name__
    if kind in _DML:
        return _DML[kind], False, f"it holds {kind.upper()}"
    if kind in VOLATILE:
        return "read", True, ""
    if isinstance(part, exp.Anonymous):
        return _named(part)
    if kind not in STRUCTURE and kind not in FUNCTIONS:
        return "unknown", False, f"it holds {kind}, which is not known to be harmless"
    if isinstance(part, exp.Func) and isinstance(part.parent, exp.Dot) and part.arg_key == "expression":
        return "unknown", False, "it calls a function of a schema"
    if part.args.get("operation_modifiers"):
        return "unknown", False, "it has a modifier"
    if isinstance(part, exp.PropertyEQ) and not isinstance(part.parent, exp.Struct):
        return "unknown", False, "it assigns to a variable"
    if isinstance(part, exp.Parameter) and (dialect in _VARIABLES or _assigned(part)):
        return "unknown", False, "it reads or assigns a variable of the connection"
    if isinstance(part, exp.Column) and part.name.lower() in ("nextval", "currval"):
        return "unknown", False, "it may draw from a sequence"
    return "read", _tells_time(part, kind), ""


def _named(part: Any) -> tuple[Effects, bool, str]:
    """A function that sqlglot has no class for."""
    from sqlglot import exp

    name = part.this
    if not isinstance(name, str) or isinstance(part.parent, exp.Dot):
        return "unknown", False, "it calls a function by a quoted name or of a schema"
    name = name.lower()
    if name in NAMED_VOLATILE:
        return "read", True, ""
    if name in NAMED:
        return "read", len(part.expressions) < TIMES.get(name, 0), ""
    return "unknown", False, f"it calls `{name}`, which is not known to be harmless"


def _assigned(part: Any) -> bool:
    """Whether a variable stands where T-SQL assigns: left of `=` among what is selected."""
    from sqlglot import exp

    holder = part.parent
    return isinstance(holder, exp.EQ) and isinstance(holder.parent, exp.Select) and holder.arg_key == "expressions"


def _tells_time(part: Any, kind: str) -> bool:
    """Whether a part stands for the time of the call."""
    from sqlglot import exp

    if isinstance(part, exp.Literal):
        return bool(part.is_string) and part.name.strip().lower() in NOW
    if kind in ("Date", "Time", "Datetime", "Timestamp"):
        return part.this is None and not part.expressions
    if isinstance(part, exp.Cast):
        # A parameter may be `now`.
        return isinstance(part.this, exp.Placeholder | exp.Parameter) and part.to.this.name.startswith(_TEMPORAL)
    return False


def _tables(root: Any) -> Iterator[tuple[str, bool]]:
    """The tables that a statement names, those of its own WITH left out; each with whether it is surely a table."""
    from sqlglot import exp

    for table in root.find_all(exp.Table):
        this = table.this
        if isinstance(this, exp.Func):
            # Whether it may be called at all is told where functions are.
            named = isinstance(this, exp.Anonymous)
            known = str(this.this).lower() in ROW_NAMES if named else type(this).__name__ in ROW_FUNCTIONS
            if not known:
                yield (str(this.this) if named else type(this).__name__).lower(), False
            continue
        if not isinstance(this, exp.Identifier):
            yield str(this).lower(), False
            continue
        if not table.db and this.name.lower() in _own(table):
            continue
        parts = [part for part in (this.name, table.db, table.catalog) if part]
        plain = bool(parts) and not any(_NO_TABLE.search(part) for part in parts)
        yield this.name.lower(), plain and not this.name.lower().startswith("pragma_")


def _own(table: Any) -> set[str]:
    """The names in small letters that the WITHs around a table give, as far as they are seen where it stands."""
    from sqlglot import exp

    found: set[str] = set()
    below, holder = table, table.parent
    while holder is not None:
        if isinstance(holder, exp.With):
            # From inside of one of its queries: what stands before it, and all where they may call themselves.
            for each in holder.expressions:
                if each is below and not holder.args.get("recursive"):
                    break
                found.add(each.alias.lower())
        else:
            own = next((part for part in holder.args.values() if isinstance(part, exp.With)), None)
            if own is not None and own is not below:
                found.update(each.alias.lower() for each in own.expressions)
        below, holder = holder, holder.parent
    return found
