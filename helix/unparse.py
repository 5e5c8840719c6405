"""Expressions and prompts as text: as the workflow language writes them, and as a slot of a prompt does.

Both forms read back as the same tree, with no more parentheses than that takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from helix.expr import Arg, Binary, Call, Expr, Field, Index, ListExpr, Literal, Name, RecordExpr, Unary
from helix.functions import FUNCTIONS
from helix.templates.template import Block, Slot, Template, Text
from helix.types import is_word, quote

_LEVELS = {
    "or": 1, "and": 2, "not": 3, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "in": 4, "not in": 4,
    "+": 5, "-": 5, "*": 6, "/": 6,
}  # fmt: skip
_COMPARISON = 4
_MINUS = 7
_FILTER = 8
_POSTFIX = 9
_DURATION = re.compile(r"[0-9]+(\.[0-9]+)?(ms|s|m|h)")
_ESCAPED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\\]")


def unparse_expr(expr: Expr) -> str:
    """An expression on one line, as the workflow language writes it; a bound input shows as `$0`."""
    return _Writer(_literal, _key, _call).write(expr, 0)


def is_duration(text: str) -> bool:
    """Whether a text is a duration as the workflow language writes it, such as `300ms` or `1.5h`."""
    return _DURATION.fullmatch(text) is not None


def jinja_expr(expr: Expr) -> str:
    """An expression on one line, as the inside of a `{{ }}` writes it: built-in functions become filters."""
    return _Writer(_jinja_literal, _jinja_text, _jinja_call).write(expr, 0)


def unparse_chain(expr: Expr) -> list[tuple[str, Expr, str]]:
    """The operands of a chain such as `a and b and c`, each with the operator before it and its text; else nothing."""
    if not isinstance(expr, Binary) or _LEVELS[expr.op] == _COMPARISON:
        return []
    writer = _Writer(_literal, _key, _call)
    level = _LEVELS[expr.op]
    found: list[tuple[str, Expr, str]] = []
    rest: Expr = expr
    while isinstance(rest, Binary) and _LEVELS[rest.op] == level:
        found.append((rest.op, rest.right, writer.write(rest.right, level + 1)))
        rest = rest.left
    found.append(("", rest, writer.write(rest, level)))
    return found[::-1]


class _Writer:
    """Prints a tree. The two languages differ in their literals, the keys of records, and calls."""

    def __init__(
        self,
        literal: Callable[[str | float | bool | None], str],
        key: Callable[[str], str],
        call: Callable[[_Writer, Call], tuple[str, int]],
    ) -> None:
        self._literal = literal
        self._key = key
        self._call = call

    def write(self, expr: Expr, level: int) -> str:
        """The text of an expression where at least `level` is needed: in parentheses if it binds less."""
        text, own = self._text(expr)
        return f"({text})" if own < level else text

    def all(self, parts: tuple[Expr, ...]) -> str:
        """Several expressions with commas between them."""
        return ", ".join(self.write(part, 0) for part in parts)

    def _text(self, expr: Expr) -> tuple[str, int]:
        match expr:
            case Literal(value=value):
                negative = isinstance(value, int | float) and str(value).startswith("-")
                # A number before a dot would read as a longer number.
                number = isinstance(value, int | float) and not isinstance(value, bool)
                return self._literal(value), _MINUS if negative else _FILTER if number else _POSTFIX
            case Name(name=name):
                return name, _POSTFIX
            case Arg(index=index):
                return f"${index}", _POSTFIX
            case Field(base=base, name=name):
                plain = is_word(name) and not name.startswith("__")
                inner = self.write(base, _POSTFIX)
                return (f"{inner}.{name}" if plain else f"{inner}[{self._literal(name)}]"), _POSTFIX
            case Index(base=base, index=index):
                return f"{self.write(base, _POSTFIX)}[{self.write(index, 0)}]", _POSTFIX
            case ListExpr(items=items):
                return f"[{self.all(items)}]", _POSTFIX
            case RecordExpr(fields=fields):
                shown = ", ".join(f"{self._key(name)}: {self.write(value, 0)}" for name, value in fields)
                return (f"{{ {shown} }}" if fields else "{}"), _POSTFIX
            case Unary(op="not", operand=operand):
                return f"not {self.write(operand, _LEVELS['not'])}", _LEVELS["not"]
            case Unary(operand=operand):
                # In a prompt a filter binds less than a minus before it.
                return f"-{self.write(operand, _POSTFIX)}", _MINUS
            case Binary(op=op, left=left, right=right):
                own = _LEVELS[op]
                first = self.write(left, own + (own == _COMPARISON))
                return f"{first} {op} {self.write(right, own + 1)}", own
            case Call():
                return self._call(self, expr)
        raise TypeError(f"{type(expr).__name__} is not an expression")


def _literal(value: str | float | bool | None) -> str:
    if isinstance(value, str):
        return quote(value)
    return _constant(value)


def _constant(value: float | bool | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _key(name: str) -> str:
    return name if is_word(name) else quote(name)


def _call(writer: _Writer, call: Call) -> tuple[str, int]:
    named = [f"{name}: {writer.write(value, 0)}" for name, value in call.named]
    return f"{call.function}({', '.join([*(writer.write(arg, 0) for arg in call.args), *named])})", _POSTFIX


def _jinja_literal(value: str | float | bool | None) -> str:
    return _jinja_text(value) if isinstance(value, str) else _constant(value)


def _jinja_text(text: str) -> str:
    """A text in quotes as Jinja2 reads it, never with an escaped quote inside: a workflow's `"..."` would end at it."""
    sign = "'" if '"' in text and "'" not in text else '"'
    escaped = _ESCAPED.sub(_jinja_escape, text)
    return sign + escaped.replace(sign, f"\\x{ord(sign):02x}") + sign


def _jinja_escape(found: re.Match[str]) -> str:
    known = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(found[0])
    return known.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _jinja_call(writer: _Writer, call: Call) -> tuple[str, int]:
    if call.function in FUNCTIONS and call.args and not call.named:
        subject, *rest = call.args
        # A minus before the value is legal here, but reads as if it came after.
        shown = writer.write(subject, _FILTER)
        given = f"({writer.all(tuple(rest))})" if rest else ""
        return f"{shown} | {call.function}{given}", _FILTER
    named = [f"{name}={writer.write(value, 0)}" for name, value in call.named]
    return f"{call.function}({', '.join([*(writer.write(arg, 0) for arg in call.args), *named])})", _POSTFIX


_BRACES = re.compile(r"\{\{+%?|\{%")


def unparse_template(subject: Template) -> str:
    """A template as its author writes it, ready to be read by `parse_template`."""
    shown: list[str] = []
    for position, segment in enumerate(subject.segments):
        match segment:
            case Text(text=text):
                last = position + 1 == len(subject.segments)
                shown.append(_plain(text, before_slot=not last))
            case Slot(value=value):
                shown.append(f"{{{{ {jinja_expr(value)} }}}}")
            case Block(source=source):
                shown.append(source)
    return "".join(shown)


def _plain(text: str, *, before_slot: bool) -> str:
    """Literal text with each `{{` and `{%` put into a slot, also one that would come about with the slot after it."""
    end = len(text)
    if before_slot:
        end = len(text.rstrip("{"))
    escaped = _BRACES.sub(lambda found: f"{{{{ '{found[0]}' }}}}", text[:end])
    return escaped + (f"{{{{ '{text[end:]}' }}}}" if text[end:] else "")
