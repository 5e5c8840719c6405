"""Mistakes that people bring from other languages or make by habit, told by what they probably meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from helix.errors import name_help

# A message, what to write instead, and how many characters are marked (None: the word or sign found).
Meant = tuple[str, str | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """Where a text stopped being a workflow: the word or sign found there, and the terminals that would have fitted."""

    text: str
    offset: int
    found: str
    accepted: frozenset[str]

    @property
    def line_before(self) -> str:
        """The line up to the place (at most its last 400 characters)."""
        start = max(self.text.rfind("\n", 0, self.offset) + 1, self.offset - 400)
        return self.text[start : self.offset]

    @property
    def after(self) -> str:
        """What follows the word or sign on its line (at most 200 characters)."""
        start = self.offset + len(self.found)
        return self.text[start : start + 200].split("\n")[0]

    @property
    def statement(self) -> str:
        """The first word of the line."""
        first = re.match(r"\s*(\w*)", self.line_before)
        return first[1] if first else ""


def probable(mistake: Mistake) -> Meant | None:
    """What was probably meant, where that can be told."""
    for guess in _GUESSES:
        meant = guess(mistake)
        if meant is not None:
            return meant
    return None


_SIGNS: dict[str, tuple[str, str | None]] = {
    ";": ("`;` separates nothing here", "statements end with their line"),
    "&&": ("`&&` is not an operator", "write `and`"),
    "||": ("`||` is not an operator", "write `or`"),
    "!": ("`!` is not an operator", "write `not`"),
    "%": ("`%` is not an operator", None),
    "**": ("`**` is not an operator", None),
    "^": ("`^` is not an operator", None),
    "=>": ("`=>` is not an operator", "write `>=` to compare"),
    "//": ("`//` is not a comment", "a comment begins with `#`"),
    "/*": ("`/*` begins no comment", "a comment begins with `#` and ends with its line"),
    "+=": ("`+=` is not an operator", "a name is given its value once: `total = a + b`"),
    "-=": ("`-=` is not an operator", "a name is given its value once: `total = a - b`"),
    "elif": ("`elif` is not a word of the language", "write `else if`"),
    "'": ("a text is written in double quotes", None),
    "`": ("a text is written in double quotes", None),
}
_PARTS = ("system", "user", "assistant", "history", "unordered")
# What else stands in an agent, and how its value is written.
_SETTINGS = {
    "max_turns": "8",
    "max_total_tokens": "20000",
    "max_time": "2m",
    "at_limit": "fail",
    "tool_calls": "schema",
    "trace": "on",
}
_LOOK_ALIKES = {
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u00ab": '"', "\u00bb": '"', "\u2018": '"', "\u2019": '"',
    "\uff02": '"', "\uff08": "(", "\uff09": ")", "\uff0c": ",", "\uff1a": ":", "\uff1d": "=", "\uff5b": "{",
    "\uff5d": "}",
    "\u2013": "-", "\u2014": "-", "\u2212": "-", "\u2192": "->", "\u2260": "!=", "\u2264": "<=", "\u2265": ">=",
    "\u00d7": "*", "\u00f7": "/",
}  # fmt: skip


# Words of other languages that begin a statement there.
_FOREIGN = {
    "import": '`use "file.helix" as name` takes in another workflow',
    "return": "`output name` names the columns of the result",
    "print": "`output name` names the columns of the result",
    "def": '`function name(input: text) -> text from python "module:name"` declares a function',
    "while": "`repeat up to 3 until done { ... }` repeats",
    "switch": "`if a { ... } else if b { ... }` chooses",
    "match": "`if a { ... } else if b { ... }` chooses",
    "const": "`let name = value` names a constant",
    "var": "`name = value` is a step, `let name = value` a constant",
    "class": "records have types: `{ name: text, age: int }`",
}


def _sign(mistake: Mistake) -> Meant | None:
    found, before = mistake.found, mistake.line_before
    if "_WORKFLOW" in mistake.accepted:
        return f"expected `workflow`, found `{found[:40]}`", "a file begins with `workflow name(input: text)`", None
    if found == '"""' and "BLOCK" in mistake.accepted:
        return 'a `"""` block without its end', None, None
    if found == '"' and mistake.accepted & {"STRING", "TEMPLATE"}:
        return "a text without its closing quote", 'a text over several lines is written in `"""`', None
    if found in _LOOK_ALIKES:
        return f"`{found}` (U+{ord(found):04X}) is not a sign of the language", f"write `{_LOOK_ALIKES[found]}`", None
    if found == "=" and before.endswith("=") and "NUMBER" in mistake.accepted:
        return "expected `=`, found `==`", "a step is written `name = ...`", None
    for sign in (found, before[-1:] + found):
        if sign in _SIGNS:
            return (*_SIGNS[sign], None)
    if re.search(r"\belif\s+$", before):
        return (*_SIGNS["elif"], None)
    if found == '"' and re.search(r"(?<!\w)\w$", before) and "AND" in mistake.accepted:
        return f"a text has no prefix `{before[-1]}`", 'a message holds slots as it is: `user "{{ name }}"`', None
    if found != "\n" and (found.isspace() or not found.isprintable()):
        return f"the character U+{ord(found[0]):04X} cannot stand here", None, None
    return None


def _number(mistake: Mistake) -> Meant | None:
    number = re.compile(r"[\d.][\w.]*").match(mistake.text, mistake.offset)
    if number is None or not (mistake.found[0].isdigit() or (mistake.found == "." and len(number[0]) > 1)):
        return None
    if "NUMBER" not in mistake.accepted:
        return None
    shown = number[0][:40]
    return f"`{shown}` is not a number", "numbers are written like `12`, `0.5` and `1e6`", len(shown)


def _equals(mistake: Mistake) -> Meant | None:
    found, accepted = mistake.found, mistake.accepted
    if found == "=" and "COLON" in accepted:
        return "expected `:`, found `=`", "options and fields are written `name: value`", None
    if found == ":" and "EQUAL" in accepted:
        if mistake.statement == "let":
            return "expected `=`, found `:`", "a constant has no type: `let name = value`", None
        return "expected `=`, found `:`", "a step is written `name = ...`", None
    if found == "==" and "EQUAL" in accepted:
        return "expected `=`, found `==`", "a step is written `name = ...`", None
    if found == "=" and "EQ" in accepted:
        if re.fullmatch(r"\s*\w+\s*=\s*\w+\s*", mistake.line_before):
            return "a step has one name", "write the same step once more for another name", None
        return "`=` does not compare", "write `==`", None
    if found == ":" and "LBRACE" in accepted and mistake.statement in ("if", "for", "repeat", "else", "group"):
        return "expected `{`, found `:`", "a block stands in braces", None
    if accepted == {"COLON"}:
        return f"expected `:`, found {_shown(found)}", "inputs, options and fields are written `name: ...`", None
    if accepted == {"EQUAL"} and found in (".", "[", ","):
        return f"expected `=`, found `{found}`", "a step gives one plain name its value", None
    if found == "-" and accepted <= {"EQUAL", "LPAR"} and re.search(r"\w$", mistake.line_before):
        return "a name holds no `-`", "write `_` instead", None
    if found == ":" and "TEMPLATE" in accepted:
        return "expected a text in quotes, found `:`", 'a message is written `user "..."`', None
    return None


def _expression(mistake: Mistake) -> Meant | None:
    found, accepted = mistake.found, mistake.accepted
    if found in ("==", "!=", "<", "<=", ">", ">=") and "AND" in accepted:
        return "comparisons do not chain", "write `a < b and b < c`", None
    if found == "(" and "DOT" in accepted:
        return "only functions by their names are called", "write `upper(name)` instead of `name.upper()`", None
    if found == "?" and "AND" in accepted:
        return (
            "`?` makes types optional, and is no operator",
            "write an `if` of its own, or `default(value, other)`",
            None,
        )
    if re.search(r"=\s*if\s+$", mistake.line_before):
        return "an `if` is not a value", "write `if condition { name = ... } else { name = ... }`", None
    if found == "if" and "AND" in accepted:
        return "an `if` is not a value", "write `name = value when condition`, or an `if` block", None
    if found == "{" and mistake.line_before.endswith("{") and mistake.accepted & {"RBRACE", "NAME"}:
        return "`{{ }}` stands only inside of texts", "write the name alone, or put the text in quotes", None
    if found == "\n" and "LBRACE" in accepted and mistake.text[mistake.offset :].lstrip().startswith("{"):
        return "the `{` of a block stands on the line before", None, None
    if found == "\n" and "RPAR" in accepted and "COMMA" not in accepted:
        return "`(` without its `)` on this line", None, None
    if found == "\n" and "RSQB" in accepted and "COMMA" not in accepted:
        return "`[` without its `]` on this line", None, None
    return None


def _statement(mistake: Mistake) -> Meant | None:
    found, accepted, before = mistake.found, mistake.accepted, mistake.line_before
    word = mistake.statement
    if accepted == {"EQUAL"} and word in _FOREIGN and found != "\n":
        return f"`{word}` is not a word of the language", _FOREIGN[word], None
    if "EQUAL" in accepted and word in ("for", "llm"):
        return f"`{word}` gives a value, and the value needs a name", f"write `name = {word} ...`", None
    if found == "}" and "_YIELD" in accepted:
        return "a `for` without its `yield`", "its last line is `yield value`", None
    outside = found == "yield" and "_YIELD" not in accepted and "NAME" in accepted
    if outside or (accepted == {"EQUAL"} and re.search(r"\byield\s+$", before)):
        return "`yield` outside of a `for`", "only the last line of a `for` is `yield value`", None
    last = re.search(
        r"^[ \t]*(\w+)[^\n]*\s*\Z", mistake.text[max(0, mistake.offset - 400) : mistake.offset], re.MULTILINE
    )
    if accepted <= {"RBRACE", "_NL", "COMMA"} and last and last[1] == "yield":
        return "nothing follows the `yield` of a `for`", None, None
    if found == "else":
        return "`else` without an `if` before it", "it follows the `}` of an `if`", None
    shapes = {
        "_UP": ("repeat", "`repeat up to 3 until done { ... }`"),
        "_TO": ("repeat", "`repeat up to 3 until done { ... }`"),
        "_BY": ("", f"`{word} by name`"),
        "_WHEN": ("keep", "`keep when condition`"),
    }
    for terminal, (owner, shape) in shapes.items():
        if terminal in accepted and len(accepted) <= 2 and (not owner or word == owner):
            return f"expected `{terminal.strip('_').lower()}`, found {_shown(found)}", f"write {shape}", None
    if "_AS" in accepted and word in ("spread", "use") and found == "\n":
        example = "`spread values as value`" if word == "spread" else '`use "file.helix" as name`'
        return f"`{word}` needs a name", f"write {example}", None
    return None


def _entries(mistake: Mistake) -> Meant | None:
    found, accepted, before = mistake.found, mistake.accepted, mistake.line_before
    if "TEMPLATE" in accepted and found.isidentifier():
        return f"expected a text in quotes, found `{found[:40]}`", f'write `"{{{{ {found[:40]} }}}}"`', None
    if accepted & {"SETTING", "_TOOLS"} and "ROLE" in accepted and re.match(r"\s*:?\s*[\w\[]", mistake.after):
        if found == "tools":
            return "`tools` is a list of names", "write `tools [name, ...]`", None
        if found in _SETTINGS:
            return f"`{found}` is followed by its value", f"write `{found} {_SETTINGS[found]}`", None
        if found.isidentifier():
            known = name_help(found, ("tools", *_SETTINGS, *_PARTS), "entries")
            return f"`{found[:40]}` is nothing that stands in an agent", known, None
    if "ROLE" in accepted and found.isidentifier() and re.match(r'\s*:?\s*"', mistake.after):
        return f"`{found[:40]}` is not a kind of message", name_help(found, _PARTS, "messages"), None
    if "ROLE" in accepted and found == '"':
        return "a message begins with its role", 'write `user "..."`', None
    if "_PART" in accepted and found == '"':
        return "a part begins with `part`", 'write `part "..."`', None
    if accepted <= {"STRING", "BLOCK", "RSQB", "_NL", "COMMA"} and "STRING" in accepted and found.isidentifier():
        return f"expected a text in quotes, found `{found[:40]}`", f'write `"{found[:40]}"`', None
    if "RSQB" in accepted and found in (")", "}"):
        return f"`[` closed by `{found}`", None, None
    if "RPAR" in accepted and found in ("]", "}"):
        return f"`(` closed by `{found}`", None, None
    if found == "\n" and re.search(r",\s*(#.*)?$", before):
        return "a comma with nothing after it", None, None
    if (called := _model_call(mistake)) is not None:
        return called
    follows = before.strip() and (re.match(r"\w", found) or found in ('"', "[", "{", "("))
    starts = accepted & {"_NL", "COMMA"} and follows
    if starts and mistake.statement in ("output", "sort") and "AND" in accepted:
        return f"expected `,` before {_shown(found)}", None, None
    if starts and "_WHEN" in accepted and found == "if":
        return "a step does not end in `if`", "write `when` before its condition", None
    if starts and "$END" in accepted and "EQUAL" not in accepted:
        return f"unexpected {_shown(found)} after a statement", "each statement begins on a line of its own", None
    if starts and accepted & {"RPAR", "RSQB", "RBRACE"}:
        return f"expected `,` or a line break before {_shown(found)}", None, None
    return None


def _model_call(mistake: Mistake) -> Meant | None:
    """A call of a model by another word than `llm`: `x = lm main {`, `x = lm {`."""
    word = re.search(r"(?:=|\byield)\s*(\w+)\s+$", mistake.line_before)
    found, after = mistake.found, mistake.after.lstrip()
    named = found.isidentifier() and found not in ("when", "else", "and", "or", "in", "not", "is", "if")
    if (
        word is None
        or "EQUAL" in mistake.accepted
        or not (found == "{" or (named and after.startswith(("{", "(", "->"))))
    ):
        return None
    help = f"a model is called by `llm`: write `llm{f' {found[:40]}' if named else ''} {{ ... }}`"
    return f"unexpected {_shown(found)} after `{word[1][:40]}`", help, None


def _shown(found: str) -> str:
    return "a line break" if found == "\n" else f"`{found[:40]}`"


_GUESSES: tuple[Callable[[Mistake], Meant | None], ...] = (_sign, _number, _equals, _expression, _statement, _entries)
