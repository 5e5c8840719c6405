"""Queries that look rows up by one key, and the one query that looks them up for many keys.

`SELECT total FROM orders WHERE customer = :c` asked for each of a thousand customers is one query with `IN`. Which of
the keys a row belongs to is left to SQLite, so that types and collations decide as they do for a single key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from helix.sql.clock import is_volatile
from helix.sql.lexer import Token, closing, split_at, tokens_of
from helix.sql.normal import parse_query

# Functions of one row's values that have the same value each time; all others may gather rows or do anything.
_FUNCTIONS = frozenset((
    "abs", "coalesce", "date", "datetime", "hex", "ifnull", "instr", "json_extract", "julianday", "length", "lower",
    "ltrim", "nullif", "replace", "round", "rtrim", "strftime", "substr", "time", "trim", "typeof", "upper",
))  # fmt: skip
# Words before a bracket that is no call.
_BRACKETS = frozenset(("and", "or", "not", "in", "on", "using", "where", "when", "then", "else", "case", "like", "is"))
_OWN = "helix_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A query by one key. `parameter` is the key's, without its sign; `column` is what it is compared with.

    `select` is the text up to FROM, `rows` that from there to the comparison, `rest` what follows it. `tables` are the
    tables that the query reads.
    """

    parameter: str
    column: str
    select: str
    rows: str
    rest: str
    tables: tuple[str, ...]

    def batch(self, count: int) -> str:
        """The query for so many keys, bound by number. Its last column says which keys a row belongs to: `0,3`."""
        keys = ", ".join(f"({number}, ?{number + 1})" for number in range(count))
        marks = ", ".join(f"?{number + 1}" for number in range(count))
        # The plus takes the key's own column from the comparison: a bound value has no type to compare by. The column
        # is one that the query itself names, which was parsed.
        where = f"WHERE {self.column} = +helix_key"
        places = f"(SELECT group_concat(helix_place) FROM helix_keys {where}) AS helix_places"  # nosec B608
        return (
            f"WITH helix_keys(helix_place, helix_key) AS (VALUES {keys})\n"
            f"{self.select}\n, {places}\n{self.rows} {self.column} IN ({marks}) {self.rest}"
        )


@lru_cache(maxsize=1024)
def lookup_of(statement: str) -> Lookup | None:
    """The lookup that a query is, or None.

    It is one SELECT over tables whose WHERE holds `column = :key`, and other conditions on each row, joined by AND. It
    has no grouping, no order, no limit, no query inside, and no parameter but the key.
    """
    tokens = tokens_of(statement)
    if tokens is None or is_volatile(statement) or sum(token.kind == "variable" for token in tokens) != 1:
        return None
    tables = _plain_tables(statement)
    if not tables or any(token.name.startswith(_OWN) for token in tokens) or not _calls_are_known(tokens):
        return None
    start = next((place for place, token in enumerate(tokens) if token.lower == "from"), len(tokens))
    where = next((place for place, token in enumerate(tokens) if token.lower == "where"), len(tokens))
    end = len(tokens) - (tokens[-1].text == ";")
    if not start < where < end or any(token.text == ";" for token in tokens[:end]):
        return None
    conditions = tokens[where + 1 : end]
    if len(split_at(conditions, "or")) > 1 or any(token.lower in ("between", "case") for token in conditions):
        # An AND of theirs is none of the condition's own.
        return None
    for term in split_at(conditions, "and"):
        found = _comparison(term)
        if found is not None:
            column, key = found
            return Lookup(
                parameter=key.text[1:],
                column=statement[column[0].start : column[-1].end],
                select=statement[: tokens[start].start],
                rows=statement[tokens[start].start : term[0].start],
                rest=statement[term[-1].end : tokens[end - 1].end],
                tables=tables,
            )
    return None


def _plain_tables(statement: str) -> tuple[str, ...]:
    """The tables of a query that is one SELECT of rows as they are; none where it is anything else."""
    from sqlglot import exp

    parsed = parse_query(statement)
    if not isinstance(parsed, exp.Select):
        return ()
    known = {"expressions", "from", "from_", "joins", "where", "kind", "hint"}
    others = [name for name, value in parsed.args.items() if value and name not in known]
    kinds = (exp.Subquery, exp.AggFunc, exp.Window, exp.Placeholder)
    inner = [part for part in parsed.walk() if isinstance(part, (exp.Select, *kinds)) and part is not parsed]
    tables = list(parsed.find_all(exp.Table))
    plain = all(isinstance(table.this, exp.Identifier) and table.db in ("", "main") for table in tables)
    if others or not plain or any(not isinstance(part, exp.Placeholder) for part in inner):
        return ()
    return tuple(dict.fromkeys(table.name for table in tables))


def _calls_are_known(tokens: tuple[Token, ...]) -> bool:
    """Whether each bracket that follows a name is a call of a function of one row, or no call at all."""
    known = _FUNCTIONS | _BRACKETS
    return all(
        follows.text != "(" or (token.kind != "quoted" and (token.kind != "word" or token.lower in known))
        for token, follows in pairwise(tokens)
    )


def _comparison(term: tuple[Token, ...]) -> tuple[tuple[Token, ...], Token] | None:
    """The column and the key of `column = :key`, either way round and in brackets or not."""
    while len(term) > 2 and term[0].text == "(" and closing(term, 0) == len(term) - 1:
        term = term[1:-1]
    sides = split_at(term, "=") if len(split_at(term, "=")) == 2 else split_at(term, "==")
    if len(sides) != 2:
        return None
    column, key = sides if len(sides[1]) == 1 and sides[1][0].kind == "variable" else (sides[1], sides[0])
    if len(key) != 1 or key[0].kind != "variable" or len(key[0].text) < 2 or key[0].text[0] == "?":
        return None
    words = [token.kind for token in column[::2]] + [token.text for token in column[1::2]]
    return (column, key[0]) if words in (["word"], ["word", "word", "."]) else None
