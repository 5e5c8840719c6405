"""Lark's parse errors in words: what was found, what was expected, and what the author probably meant."""

from __future__ import annotations

import re

from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from helix.errors import ParseError, near_match
from helix.span import Source, Span

# Terminals that begin a statement are told as one, likewise operators.
_STATEMENTS = {
    "_LET", "_MODEL", "_TOOL", "_FUNCTION", "_USE", "_REPEAT", "_KEEP", "_SPREAD", "_GROUP", "_SORT", "_LIMIT", "_OUTPUT", "_IF",
}  # fmt: skip
_OPERATORS = {"OR", "AND", "IN", "EQ", "NE", "LE", "GE", "LT", "GT", "PLUS", "STAR", "SLASH", "DOT", "LSQB", "__ANON_0"}
_VALUES = {"NUMBER", "STRING", "BLOCK", "TRUE", "FALSE", "NULL", "MINUS", "NOT", "LPAR", "LSQB", "LBRACE", "NAME"}
_WORDS = {
    "EQUAL": "`=`", "COLON": "`:`", "COMMA": "`,`", "LPAR": "`(`", "RPAR": "`)`", "LBRACE": "`{`", "RBRACE": "`}`",
    "LSQB": "`[`", "RSQB": "`]`", "NAME": "a name", "STRING": "a text in quotes", "NUMBER": "a number", "_NL": "a line break",
    "$END": "the end of the file", "WORKFLOW": "`workflow`", "LIST": "`list`", "CHOICE": "`choice`", "OPTIONAL": "`?`",
    "ROLE": "`system`, `user` or `assistant`", "DURATION": "a duration", "DIRECTION": "`asc` or `desc`",
}  # fmt: skip
_STATEMENT_WORDS = [
    "let",
    "model",
    "tool",
    "function",
    "use",
    "repeat",
    "keep",
    "spread",
    "group",
    "sort",
    "limit",
    "output",
    "if",
    "for",
    "workflow",
    "else",
    "yield",
]
_PART_WORDS = ["system", "user", "assistant", "history", "unordered"]


def explain(error: UnexpectedInput, text: str, source: Source) -> ParseError:
    """The error of Helix for an error of Lark."""
    line, column = max(error.line or 1, 1), max(error.column or 1, 1)
    offset = min(max(getattr(error, "pos_in_stream", None) or 0, 0), len(text))
    if isinstance(error, UnexpectedEOF) or (isinstance(error, UnexpectedToken) and error.token.type == "$END"):
        return _at_end(error, text, source)
    found = _found(error, text, offset)
    line, column = _place(text, offset)
    end_column = column + max(1, len(found.split("\n")[0]))
    span = Span(source=source, line=line, column=column, end_line=line, end_column=end_column)
    special = _special(text, offset, found, error)
    if special is not None:
        return ParseError(special[0], span, special[1])
    expected = _expected(_accepted(error))
    shown = "a line break" if found.startswith("\n") else f"`{found}`"
    return ParseError(f"unexpected {shown}: expected {expected}", span, _near_help(found, error))


def _place(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def _found(error: UnexpectedInput, text: str, offset: int) -> str:
    """The word or sign at the place of the error, read off the text: the lexer may have split it elsewhere."""
    piece = re.match(r"\w+|\n|\"\"\"|==|!=|<=|>=|->|&&|\|\||.", text[offset:], re.DOTALL)
    return piece[0] if piece else ""


def _accepted(error: UnexpectedInput) -> set[str]:
    if isinstance(error, UnexpectedToken):
        return set(error.accepts or error.expected)
    if isinstance(error, UnexpectedCharacters):
        return set(error.allowed or ())
    return set(getattr(error, "expected", ()))


def _expected(accepted: set[str]) -> str:
    words: list[str] = []
    rest = set(accepted)
    if len(rest & _STATEMENTS) > 3:
        words.append("a statement")
        rest -= _STATEMENTS | {"NAME", "_NL"}
    if {"NUMBER", "STRING", "NAME"} <= rest:
        words.append("a value")
        rest -= _VALUES
    if len(rest & _OPERATORS) > 3:
        words.append("an operator")
        rest -= _OPERATORS | {"MINUS", "NOT", "SLASH"}
    rest -= {"BLOCK"} if "STRING" in rest else set()
    for name in sorted(rest):
        words.append(_WORDS.get(name, f"`{name.strip('_').lower()}`" if not name.startswith("__") else "`->`"))
    unique = sorted(set(words), key=words.index)
    if len(unique) > 6:
        unique = [*unique[:5], "..."]
    if len(unique) <= 1:
        return unique[0] if unique else "nothing more"
    return ", ".join(unique[:-1]) + " or " + unique[-1]


def _at_end(error: UnexpectedInput, text: str, source: Source) -> ParseError:
    stripped = text.rstrip()
    line, column = _place(text, len(stripped))
    span = Span(source=source, line=line, column=max(column, 1), end_line=line, end_column=max(column, 1) + 1)
    if not re.sub(r"#[^\n]*", "", text).strip():
        message = "the file holds no workflow"
        return ParseError(message, span, "a workflow begins with `workflow name(input: text)`")
    open_bracket = _unclosed(text)
    if open_bracket is not None:
        sign, offset = open_bracket
        line, column = _place(text, offset)
        span = Span(source=source, line=line, column=column, end_line=line, end_column=column + 1)
        closing = {"{": "}", "(": ")", "[": "]"}[sign]
        return ParseError(f"`{sign}` without its `{closing}`", span)
    return ParseError(f"the file ends too early: expected {_expected(_accepted(error))}", span)


_SKIPPED = re.compile(r'"""[\s\S]*?"""|"(?>\\[^\n]|\{\{(?>[^}"\n]|"[^"\n]*"|\}(?!\}))*\}\}|[^"\\\n])*+"|#[^\n]*')


def _unclosed(text: str) -> tuple[str, int] | None:
    """The innermost bracket still open at the end of the text, strings and comments passed over."""
    stack: list[tuple[str, int]] = []
    position = 0
    while position < len(text):
        skipped = _SKIPPED.match(text, position)
        if skipped:
            position = skipped.end()
            continue
        char = text[position]
        if char in "{([":
            stack.append((char, position))
        elif char in "})]" and stack:
            stack.pop()
        position += 1
    return stack[-1] if stack else None


def _special(text: str, offset: int, found: str, error: UnexpectedInput) -> tuple[str, str | None] | None:
    """Mistakes that people bring from other languages, told by what they probably meant."""
    accepted = _accepted(error)
    line = text[text.rfind("\n", 0, offset) + 1 : (text.find("\n", offset) + 1 or len(text) + 1) - 1]
    before = text[:offset].rstrip(" \t")
    if "WORKFLOW" in accepted:
        return f"expected `workflow`, found `{found}`", "a file begins with `workflow name(input: text)`"
    if found == '"""':
        return 'a `"""` block without its end', None
    if found == '"':
        return "a text without its closing quote", 'a text over several lines is written in `"""`'
    if found == "'":
        return "a text is written in double quotes", None
    simple = {
        ";": ("`;` separates nothing here", "statements end with their line"),
        "&&": ("`&&` is not an operator", "write `and`"),
        "||": ("`||` is not an operator", "write `or`"),
        "!": ("`!` is not an operator", "write `not`"),
        "%": ("`%` is not an operator", None),
        "elif": ("`elif` is not a word of the language", "write `else if`"),
    }
    if found in simple:
        return simple[found]
    if found == "/" and text.startswith("//", offset):
        return "`//` is not a comment", "a comment begins with `#`"
    if found == "=" and "EQUAL" not in accepted and re.match(r"\s*(keep|if|repeat|\w+\s*=.*when)\b", line):
        return "`=` does not compare", "write `==`"
    if found == "=" and "COLON" in accepted:
        return "expected `:`, found `=`", "options and fields are written `name: value`"
    if found == ":" and "EQUAL" in accepted:
        return "expected `=`, found `:`", "a step is written `name = ...`"
    if re.search(r"=\s*agent(\s+\w+)?$", before) or (found == "agent" and before.endswith("=")):
        return "agent steps are not part of this version", "call tools in steps of their own"
    if (
        found == "}"
        and re.search(r"\bfor\b[^{]*\{(?:(?!\byield\b).)*$", text[:offset], re.DOTALL)
        and "_YIELD" in accepted
    ):
        return "a `for` without its `yield`", "its last line is `yield value`"
    return None


def _near_help(found: str, error: UnexpectedInput) -> str | None:
    accepted = _accepted(error)
    known: list[str] = []
    if accepted & _STATEMENTS:
        known += _STATEMENT_WORDS
    if "ROLE" in accepted:
        known += _PART_WORDS
    near = near_match(found, known) if found.isidentifier() and known else None
    if near is None or near == found:
        previous = error.token_history[-1] if isinstance(error, UnexpectedToken) and error.token_history else None
        near = near_match(str(previous), _STATEMENT_WORDS) if previous is not None and "EQUAL" in accepted else None
        return f"did you mean `{near}`?" if near and near != str(previous) else None
    return f"did you mean `{near}`?"
