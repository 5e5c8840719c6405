"""Lark's parse errors in words: what was found, what was expected, and what the author probably meant."""

from __future__ import annotations

import re
import unicodedata

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from helix.errors import ParseError, near_match
from helix.grammar.mistakes import Mistake, probable
from helix.grammar.strings import MESSAGE
from helix.span import Source, Span

# Terminals that begin a statement are told as one, likewise operators.
_STATEMENTS = frozenset({
    "_LET", "_MODEL", "_TOOL", "_FUNCTION", "_USE", "_REPEAT", "_KEEP", "_SPREAD", "_GROUP", "_SORT", "_LIMIT",
    "_OUTPUT", "_IF",
})  # fmt: skip
_OPERATORS = frozenset({"OR", "AND", "IN", "EQ", "NE", "LE", "GE", "LT", "GT", "PLUS", "STAR", "SLASH", "DOT", "LSQB"})
_VALUES = frozenset({
    "NUMBER", "STRING", "BLOCK", "TRUE", "FALSE", "NULL", "MINUS", "NOT", "LPAR", "LSQB", "LBRACE", "NAME",
})  # fmt: skip
_WORDS = {
    "EQUAL": "`=`", "COLON": "`:`", "COMMA": "`,`", "LPAR": "`(`", "RPAR": "`)`", "LBRACE": "`{`", "RBRACE": "`}`",
    "LSQB": "`[`", "RSQB": "`]`", "NAME": "a name", "STRING": "a text in quotes", "TEMPLATE": "a text in quotes",
    "NUMBER": "a number", "_NL": "a line break", "$END": "the end of the file", "OPTIONAL": "`?`",
    "ROLE": "a message", "_HISTORY": "a message", "_UNORDERED": "a message", "DURATION": "a duration",
    "DIRECTION": "`asc` or `desc`", "__ANON_0": "`->`", "DOT": "`.`", "MINUS": "`-`", "_LLM": "a value",
    "_FOR": "a value", "_AGENT": "a value",
}  # fmt: skip
_STATEMENT_WORDS = (
    "let", "model", "tool", "function", "use", "repeat", "keep", "spread", "group", "sort", "limit", "output", "if",
    "for", "workflow", "else", "yield",
)  # fmt: skip
_OF_AGENTS = frozenset({"_TOOLS", "SETTING"})
_CLOSING = {"}": "{", ")": "(", "]": "["}
_LONGEST = 40


def explain(error: UnexpectedInput, text: str, source: Source, what: str) -> ParseError:
    """The error of Helix for an error of Lark; `what` is what the text is of (`file`, `statement`)."""
    offset = min(max(getattr(error, "pos_in_stream", None) or 0, 0), len(text))
    accepted = _accepted(error)
    at_end = isinstance(error, UnexpectedEOF) or (isinstance(error, UnexpectedToken) and error.token.type == "$END")
    if at_end:
        return _at_end(accepted, text, source, what)
    found = _found(text, offset)
    mistake = Mistake(text=text, offset=offset, found=found, accepted=accepted)
    meant = probable(mistake)
    if meant is not None:
        message, help, width = meant
        return ParseError(message, _span(source, text, offset, width or len(found)), help)
    near = _near(mistake)
    help = f"did you mean `{near}`?" if near else None
    if found in _CLOSING and not (accepted & {"RBRACE", "RPAR", "RSQB"}) and _unclosed(text[:offset]) is None:
        return ParseError(f"`{found}` without its `{_CLOSING[found]}`", _span(source, text, offset, 1))
    shown = "line break" if found == "\n" else f"`{_short(found)}`"
    return ParseError(
        f"unexpected {shown}: expected {_expected(accepted)}", _span(source, text, offset, len(found)), help
    )


def explain_name(token: Token, source: Source) -> ParseError:
    """The error for a name with a character that no name has."""
    index = next((i for i in range(1, len(token) + 1) if not token[:i].isidentifier()), 1) - 1
    char = token[index]
    line, column = token.line or 1, (token.column or 1) + index
    span = Span(source=source, line=line, column=column, end_line=line, end_column=column + 1)
    plain = unicodedata.normalize("NFKC", char)
    help = f"write `{plain}`" if plain != char and len(plain) == 1 and plain.isascii() and plain.isprintable() else None
    shown = f"`{char}` (U+{ord(char):04X})" if char.isprintable() else f"the character U+{ord(char):04X}"
    return ParseError(f"{shown} cannot stand in a name", span, help)


def _span(source: Source, text: str, offset: int, width: int) -> Span:
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    return Span(source=source, line=line, column=column, end_line=line, end_column=column + max(1, width))


def _found(text: str, offset: int) -> str:
    """The word or sign at the place of the error, read off the text: the lexer may have split it elsewhere."""
    piece = _PIECE.match(text, offset)
    return piece[0] if piece else ""


_PIECE = re.compile(r"\w+|\n|\"\"\"|==|!=|<=|>=|->|=>|&&|\|\||[-+*/]=|//|/\*|\*\*|.", re.DOTALL)


def _short(found: str) -> str:
    return found if len(found) <= _LONGEST else found[: _LONGEST - 3] + "..."


def _accepted(error: UnexpectedInput) -> frozenset[str]:
    if isinstance(error, UnexpectedToken):
        return frozenset(error.accepts or error.expected)
    if isinstance(error, UnexpectedCharacters):
        return frozenset(error.allowed or ())
    return frozenset(getattr(error, "expected", ()))


def _expected(accepted: frozenset[str]) -> str:
    words: list[str] = []
    # Where a message of an agent may end, these would follow; so would they, to the parser, elsewhere.
    rest = set(accepted) - _OF_AGENTS
    if len(rest & _STATEMENTS) > 3:
        words.append("a statement")
        rest -= _STATEMENTS | {"NAME", "_NL", "COMMA", "$END"}
    if {"NUMBER", "STRING", "NAME"} <= rest:
        words.append("a value")
        rest -= _VALUES
    if len(rest & _OPERATORS) > 3:
        words.append("an operator")
        rest -= _OPERATORS | {"MINUS", "NOT", "SLASH"}
    rest -= {"BLOCK"}
    words += [_WORDS.get(name, f"`{name.strip('_').lower()}`") for name in sorted(rest)]
    unique = sorted(set(words), key=words.index)
    if len(unique) > 6:
        unique = [*unique[:5], "..."]
    if len(unique) <= 1:
        return unique[0] if unique else "nothing more"
    return ", ".join(unique[:-1]) + " or " + unique[-1]


def _at_end(accepted: frozenset[str], text: str, source: Source, what: str) -> ParseError:
    if not re.sub(r"#[^\n]*", "", text).strip():
        help = "a workflow begins with `workflow name(input: text)`"
        return ParseError("the file holds no workflow", _span(source, text, len(text.rstrip()), 1), help)
    bracket = _unclosed(text)
    if bracket is not None:
        closing = {"{": "}", "(": ")", "[": "]"}[text[bracket]]
        return ParseError(f"`{text[bracket]}` without its `{closing}`", _span(source, text, bracket, 1))
    end = len(_COMMENT_AT_END.sub("", text).rstrip())
    meant = probable(Mistake(text=text, offset=end, found="\n", accepted=accepted))
    if meant is not None:
        return ParseError(meant[0], _span(source, text, end, 1), meant[1])
    return ParseError(f"the {what} ends too early: expected {_expected(accepted)}", _span(source, text, end, 1))


_COMMENT_AT_END = re.compile(r"\s*(#[^\n]*\n?\s*)+\Z")
_SKIPPED = re.compile(rf'"""[\s\S]*?"""|{MESSAGE.pattern}|#[^\n]*|[^"#{{}}()\[\]]+')


def _unclosed(text: str) -> int | None:
    """Where the innermost bracket begins that is open at the end of the text; strings and comments passed over."""
    stack: list[int] = []
    position = 0
    while position < len(text):
        skipped = _SKIPPED.match(text, position)
        if skipped:
            position = skipped.end()
            continue
        if text[position] in "{([":
            stack.append(position)
        elif text[position] in "})]" and stack:
            stack.pop()
        position += 1
    return stack[-1] if stack else None


def _near(mistake: Mistake) -> str | None:
    """The word that was probably meant by the one found, or by the one before it."""
    known: list[str] = []
    if mistake.accepted & _STATEMENTS:
        known += _STATEMENT_WORDS
    if known and mistake.found.isidentifier():
        near = near_match(mistake.found, known)
        if near and near != mistake.found:
            return near
    before = re.search(r"(\w{1,40})[ \t]*$", mistake.line_before)
    if before and "EQUAL" in mistake.accepted:
        near = near_match(before[1], _STATEMENT_WORDS)
        return near if near != before[1] else None
    return None
