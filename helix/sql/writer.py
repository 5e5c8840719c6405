"""Writes the tokens of a SQL query in normal form: keywords in capitals, one space, no needless brackets."""

from __future__ import annotations

from collections.abc import Iterator

from helix.sql.lexer import Token, closing, split_at

# All words that SQLite's grammar knows, those that may also be names among them.
KEYWORDS = frozenset((
    "abort", "action", "add", "after", "all", "alter", "always", "analyze", "and", "as", "asc", "attach",
    "autoincrement", "before", "begin", "between", "by", "cascade", "case", "cast", "check", "collate", "column",
    "commit", "conflict", "constraint", "create", "cross", "current", "current_date", "current_time",
    "current_timestamp", "database", "default", "deferrable", "deferred", "delete", "desc", "detach", "distinct",
    "do", "drop", "each", "else", "end", "escape", "except", "exclude", "exclusive", "exists", "explain", "fail",
    "filter", "first", "following", "for", "foreign", "from", "full", "generated", "glob", "group", "groups",
    "having", "if", "ignore", "immediate", "in", "index", "indexed", "initially", "inner", "insert", "instead",
    "intersect", "into", "is", "isnull", "join", "key", "last", "left", "like", "limit", "match", "materialized",
    "natural", "no", "not", "nothing", "notnull", "null", "nulls", "of", "offset", "on", "or", "order", "others",
    "outer", "over", "partition", "plan", "pragma", "preceding", "primary", "query", "raise", "range", "recursive",
    "references", "regexp", "reindex", "release", "rename", "replace", "restrict", "returning", "right", "rollback",
    "row", "rows", "savepoint", "select", "set", "table", "temp", "temporary", "then", "ties", "to", "transaction",
    "trigger", "unbounded", "union", "unique", "update", "using", "vacuum", "values", "view", "virtual", "when",
    "where", "window", "with", "without",
))  # fmt: skip
# Functions that every SQLite has, with the fewest and the most arguments: with these no message quotes their name.
_SCALARS = {
    "abs": (1, 1), "coalesce": (2, 99), "hex": (1, 1), "ifnull": (2, 2), "instr": (2, 2), "length": (1, 1),
    "lower": (1, 1), "ltrim": (1, 2), "nullif": (2, 2), "quote": (1, 1), "replace": (3, 3), "round": (1, 2),
    "rtrim": (1, 2), "substr": (2, 3), "trim": (1, 2), "typeof": (1, 1), "upper": (1, 1),
}  # fmt: skip
_AGGREGATES = {"avg": (1, 1), "count": (0, 1), "max": (1, 1), "min": (1, 1), "sum": (1, 1), "total": (1, 1)}
_CLAUSES = ("from", "where", "group", "having", "window", "order", "limit", "union", "intersect", "except", "values")
# What may follow a bracket that is dropped, and what may stand before it, with what it must not hold at its top.
_AFTER = frozenset((
    ")", "and", "or", "group", "having", "window", "order", "limit", "union", "intersect", "except", "join", "left",
    "right", "full", "inner", "cross", "natural",
))  # fmt: skip
_BEFORE = {"where": (), "having": (), "on": (), "(": (), "or": (), "and": ("or",), "not": ("or", "and")}
_SPELLINGS = {"!=": "<>", "==": "="}


class Writer:
    """Writes the tokens of one query. `names` are words that are no keywords there; `bare` drops needless brackets."""

    def __init__(self, statement: str, tokens: tuple[Token, ...], names: frozenset[str], *, bare: bool) -> None:
        self._bare = bare
        self._statement = statement
        self._tokens = tokens
        self._names = names
        # Tokens that stay as they are, with what stands between them: the text of a column without a name.
        self._kept: set[int] = set()
        self._glued: set[int] = set()
        self._selected: set[int] = set()
        self._before: dict[int, str] = {}
        self._dropped: set[int] = set()

    def text(self) -> str:
        """The query in normal form."""
        for place, token in enumerate(self._tokens):
            if self._is(place, "select"):
                self._columns(place)
            elif self._is(place, "from") or self._is(place, "join"):
                self._tables(place)
            elif self._bare and token.text == "(" and self._is_needless(place):
                self._dropped |= {place, closing(self._tokens, place)}
        self._dropped -= self._kept
        return self._joined()

    def _is(self, place: int, word: str) -> bool:
        """Whether a keyword stands at a place."""
        return (
            0 <= place < len(self._tokens)
            and self._tokens[place].kind == "word"
            and self._tokens[place].lower == word
            and word not in self._names
        )

    # --- select lists and tables ---

    def _columns(self, select: int) -> None:
        """Looks at the columns of one SELECT: those without a name keep their text, others get their AS."""
        for first, last in self._items(select + 1):
            name = self._alias(first, last)
            self._selected.update(range(first, last))
            if name is not None:
                if not self._is(name - 1, "as"):
                    self._before[name] = "AS"
            elif not self._is_plain(first, last):
                self._kept.update(range(first, last))
                # A remark that follows belongs to the text that SQLite takes for the name.
                remarked = last < len(self._tokens) and self._between(last - 1, last).strip() != ""
                self._glued.update(range(first + 1, last + remarked))

    def _items(self, start: int) -> Iterator[tuple[int, int]]:
        """The stretches of a select list, up to the clause or bracket that ends it."""
        if self._is(start, "distinct") or self._is(start, "all"):
            start += 1
        depth, first, place = 0, start, start
        while place < len(self._tokens):
            text = self._tokens[place].text
            if depth == 0 and (text == ")" or any(self._is(place, clause) for clause in _CLAUSES)):
                break
            if depth == 0 and text == ",":
                yield first, place
                first = place + 1
            depth += (text == "(") - (text == ")")
            place += 1
        yield first, place

    def _alias(self, first: int, last: int) -> int | None:
        """The place of the name that a column is given; None where it is given none for certain."""
        if last - first < 2 or self._tokens[last - 1].kind not in ("word", "quoted", "string"):
            return None
        if self._is(last - 2, "as"):
            return last - 1
        before = self._tokens[last - 2]
        ended = before.text == ")" or (
            before.kind in ("word", "quoted", "string", "number", "blob", "variable") and before.lower not in KEYWORDS
        )
        return last - 1 if self._is_name(last - 1) and ended else None

    def _is_plain(self, first: int, last: int) -> bool:
        """Whether a column is one of a table, or all of them: then the table gives it its name.

        What stands in quotes may be a text after all, where no column is called so.
        """
        for number, token in enumerate(self._tokens[first:last]):
            named = token.kind == "word" and token.lower not in KEYWORDS and token.lower not in ("true", "false")
            if not (token.text == "." if number % 2 else named or token.text == "*"):
                return False
        return True

    def _tables(self, place: int) -> None:
        """Gives the names of tables after FROM and JOIN their AS."""
        while True:
            place = self._after_table(place + 1)
            if place >= len(self._tokens):
                return
            if self._is_name(place):
                self._before[place] = "AS"
                place += 1
            elif self._is(place, "as"):
                place += 2
            if place >= len(self._tokens) or self._tokens[place].text != ",":
                return

    def _after_table(self, place: int) -> int:
        """The place after a table, `main.t` or a query in brackets; the end where none stands there."""
        if place < len(self._tokens) and self._tokens[place].text == "(":
            return closing(self._tokens, place) + 1
        if not self._is_name(place):
            return len(self._tokens)
        while place + 2 < len(self._tokens) and self._tokens[place + 1].text == "." and self._is_name(place + 2):
            place += 2
        return place + 1

    def _is_name(self, place: int) -> bool:
        token = self._tokens[place] if place < len(self._tokens) else None
        return token is not None and token.kind in ("word", "quoted") and token.lower not in KEYWORDS

    # --- brackets ---

    def _is_needless(self, opening: int) -> bool:
        """Whether a bracket around a condition can go."""
        end = closing(self._tokens, opening)
        if end >= len(self._tokens) or opening == 0 or end == opening + 1:
            return False
        before = self._tokens[opening - 1].lower
        if before not in _BEFORE or (before != "(" and not self._is(opening - 1, before)):
            return False
        if end + 1 < len(self._tokens) and self._tokens[end + 1].lower not in _AFTER:
            return False
        inside = self._tokens[opening + 1 : end]
        if inside[0].lower in ("select", "with", "values") or len(split_at(inside, ",")) > 1:
            return False
        if before == "(" and (end + 1 >= len(self._tokens) or not self._holds_a_condition(opening - 1)):
            return False
        if before == "and" and self._ends_between(opening - 1):
            return False
        unwanted = [*_BEFORE[before]]
        if end + 1 < len(self._tokens) and self._is(end + 1, "and"):
            unwanted.append("or")
        return all(len(split_at(inside, word)) == 1 for word in unwanted)

    def _holds_a_condition(self, opening: int) -> bool:
        """Whether a bracket holds one value, not a list, a query or the arguments of a function."""
        if opening == 0:
            return False
        before = self._tokens[opening - 1]
        end = closing(self._tokens, opening)
        lists = len(split_at(self._tokens[opening + 1 : end], ",")) > 1
        return not lists and before.lower in _BEFORE

    def _ends_between(self, conjunction: int) -> bool:
        """Whether an AND is the second half of a BETWEEN."""
        depth, pending = 0, 0
        for place in range(conjunction - 1, -1, -1):
            text = self._tokens[place].text
            depth += (text == ")") - (text == "(")
            if depth < 0:
                break
            if depth == 0 and self._is(place, "between"):
                if pending == 0:
                    return True
                pending -= 1
            elif depth == 0 and self._is(place, "and"):
                pending += 1
        return False

    # --- the text ---

    def _joined(self) -> str:
        parts: list[str] = []
        last = -1
        for place, token in enumerate(self._tokens):
            if place in self._dropped:
                continue
            if place in self._before and place not in self._kept:
                parts.append(f" {self._before[place]}")
            if last >= 0:
                parts.append(self._gap(last, place))
            parts.append(token.text if place in self._kept else self._written(place))
            last = place
        if last in self._kept:
            parts.append(self._statement[self._tokens[last].end :].rstrip())
        return "".join(parts).strip()

    def _gap(self, before: int, place: int) -> str:
        if place in self._glued:
            return self._between(before, place)
        first, second = self._tokens[before], self._tokens[place]
        if first.text in ("(", ".") or second.text in (")", ",", "."):
            return ""
        # A function stands right before its bracket, and so does any name: `t(a, b)` and `t (a, b)` are one.
        called = self._is_name(before) or self._is_known_function(before)
        return "" if second.text == "(" and called else " "

    def _between(self, before: int, place: int) -> str:
        return self._statement[self._tokens[before].end : self._tokens[place].start]

    def _written(self, place: int) -> str:
        token = self._tokens[place]
        if token.kind == "sign":
            return _SPELLINGS.get(token.text, token.text)
        if token.kind != "word" or token.lower in self._names:
            return token.text
        if token.lower in KEYWORDS or self._is_known_function(place):
            return token.text.upper()
        return token.text

    def _is_known_function(self, place: int) -> bool:
        """Whether a word calls a function that SQLite has, in a way that SQLite accepts."""
        word = self._tokens[place].lower
        bounds = _SCALARS.get(word) or (_AGGREGATES.get(word) if place in self._selected else None)
        if bounds is None or place + 1 >= len(self._tokens) or self._tokens[place + 1].text != "(":
            return False
        inside = self._tokens[place + 2 : closing(self._tokens, place + 1)]
        if word in _AGGREGATES and any(token.lower in (*_AGGREGATES, "group_concat") for token in inside):
            return False
        count = len(split_at(inside, ",")) if inside else 0
        return bounds[0] <= count <= bounds[1]
