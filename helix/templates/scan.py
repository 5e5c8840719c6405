"""Where the slots and blocks of a template end: found by scanning, before Jinja2 sees any of it."""

from __future__ import annotations

import re
from collections.abc import Callable

from helix.errors import TemplateError
from helix.span import Span

Place = Callable[[int, int], Span | None]

OPENING = re.compile(r"\{\{|\{%")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*+\"|'(?:\\.|[^'\\])*+'", re.DOTALL)
_UNKNOWN_ESCAPE = re.compile(r"\\(?:\\|[^\\'\"abfnrtvxuUN0-7\n])")
_SKIPPED = re.compile(r"[^\"'{}%\[\]()]+")
_RAW = re.compile(r"\{%[-+]?\s*raw\s*(-?)%\}")
_RAW_END = re.compile(r"\{%([-+]?)\s*endraw\s*[-+]?%\}")
_TAG = re.compile(r"\{%[-+]?\s*(\w*)")
_OPENERS = ("if", "for")
_ESCAPE = "a literal `{%` is written `{{ '{%' }}`"


def slot_end(text: str, start: int, place: Place) -> int:
    """The end of the `{{ ... }}` that begins at `start`: the first `}}` outside quotes and brackets."""
    end = _closing(text, start + 2, "}}", place)
    if end is None:
        raise TemplateError("`{{` without its `}}`", place(start, start + 2), "a literal `{{` is written `{{ '{{' }}`")
    return end


def raw_text(text: str, start: int, place: Place) -> tuple[str, int] | None:
    """What stands between `{% raw %}` at `start` and its `{% endraw %}`, and where that ends; None for other tags."""
    opening = _RAW.match(text, start)
    if opening is None:
        return None
    closing = _RAW_END.search(text, opening.end())
    if closing is None:
        raise TemplateError("`{% raw %}` without its `{% endraw %}`", place(start, opening.end()))
    inside = text[opening.end() : closing.start()]
    inside = inside.lstrip() if opening[1] else inside
    return inside.rstrip() if closing[1] == "-" else inside, closing.end()


def block_end(text: str, start: int, place: Place) -> int:
    """The end of the block that the tag at `start` opens, nested blocks counted."""
    depth, position = 0, start
    while opening := OPENING.search(text, position):
        at = opening.start()
        if text.startswith("{{", at):
            position = slot_end(text, at, place)
            continue
        raw = raw_text(text, at, place)
        if raw is not None:
            position = raw[1]
            continue
        position, word = _tag(text, at, place)
        if depth == 0 and word not in _OPENERS:
            raise TemplateError(*_misplaced(word, place(at, position)))
        if word in _OPENERS:
            depth += 1
        elif word in ("endif", "endfor"):
            depth -= 1
        if depth == 0:
            return position
    help = "each `{% if %}` needs its `{% endif %}`, each `{% for %}` its `{% endfor %}`"
    raise TemplateError("a block without its end", place(start, start + 2), help)


def _tag(text: str, start: int, place: Place) -> tuple[int, str]:
    """The end of a tag and its word."""
    found = _TAG.match(text, start)
    assert found is not None
    end = _closing(text, found.end(), "%}", place)
    if end is None:
        raise TemplateError("`{%` without its `%}`", place(start, found.end()), _ESCAPE)
    word = found[1]
    if not word:
        raise TemplateError("`{%` without a word", place(start, start + 2), _ESCAPE)
    if word not in (*_OPENERS, "endif", "endfor", "else", "elif", "set", "endraw"):
        help = f"templates have `if`, `for`, `set` and `raw`; {_ESCAPE}"
        raise TemplateError(f"templates have no `{{% {word} %}}`", place(start, found.end()), help)
    return end, word


def _misplaced(word: str, span: Span | None) -> tuple[str, Span | None, str]:
    if word == "set":
        return "`{% set %}` stands inside an `{% if %}` or a `{% for %}`", span, "compute the value in a step"
    opener = {"endif": "if", "endfor": "for", "endraw": "raw"}.get(word, "if")
    return f"`{{% {word} %}}` without an `{{% {opener} %}}` before it", span, _ESCAPE


def _closing(text: str, position: int, mark: str, place: Place) -> int | None:
    """The end of the first closing mark outside quotes and brackets, or None."""
    depth = 0
    while position < len(text):
        char = text[position]
        if depth <= 0 and text.startswith(mark, position):
            return position + 2
        if char in "\"'":
            quoted = _QUOTED.match(text, position)
            if quoted is None:
                return None
            _check_escapes(quoted, place)
            position = quoted.end()
            continue
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        skipped = _SKIPPED.match(text, position + 1)
        position = skipped.end() if skipped else position + 1
    return None


def _check_escapes(quoted: re.Match[str], place: Place) -> None:
    for found in _UNKNOWN_ESCAPE.finditer(quoted[0]):
        if found[0] != "\\\\":
            start = quoted.start() + found.start()
            help = "a backslash in a text of a slot is written `\\\\`"
            raise TemplateError(f"unknown escape `{found[0]}`", place(start, start + 2), help)
